// Journeys through the pages, by keyboard alone; a line `ok <journey>` each. The first thing that is not
// as it should be ends the run.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

import { House } from "./house.mjs";

const { CHROMIUM, SERVICE, UPSTREAM, PROTECTED, PROVIDER, ISSUER, DATA, SCREENSHOTS } = process.env;
/** The journeys that are walked. */
const WALKED = new RegExp(process.env.JOURNEYS ?? "");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const house = new House(SERVICE, UPSTREAM, PROTECTED, ISSUER, DATA);

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"],
});

/** A fresh browser profile; what its pages load from elsewhere, or say on the console, is a fault. */
async function visitor(options = {}) {
  const context = await browser.newContext({ baseURL: SERVICE, ...options });
  return tab(context);
}

/** The other sites that people go to: pages of a provider, or of the company's issuer, that ask them. */
function isProvider(url) {
  if (url.startsWith(`${ISSUER}/authorize?`)) return true;
  return PROVIDER ? url.startsWith(PROVIDER) : /^http:\/\/127\.0\.0\.1:\d+\/authorize\?/.test(url);
}

async function tab(context) {
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (line) => {
    // A refusal is what some journeys want; the browser notes each on its console.
    if (!/status of (400|401|404|409|422)/.test(line.text())) page.faults.push(line.text());
  });
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(SERVICE) && !isProvider(request.url())) page.faults.push(request.url());
  });
  return page;
}

/** Types into the field that has the focus, as soon as it is on the screen: until then keys are lost. */
async function type(page, text) {
  await page.waitForLoadState("load");
  await page.evaluate(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))));
  await page.keyboard.type(text);
  assert.equal(await page.evaluate(() => document.activeElement.value), text);
}

/** Goes on with Tab until the thing of that name has the focus; nobody needs a mouse. */
async function tabTo(page, name) {
  for (let step = 0; step < 60; step++) {
    const focused = await page.evaluate(() => document.activeElement?.textContent.trim());
    if (focused === name) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never reaches ${name}`);
}

async function signIn(page, place = "/") {
  await page.goto(place);
  await signInAs(page, "admin@localhost", house.password);
}

async function signInAs(page, email, password) {
  await type(page, email);
  await page.keyboard.press("Tab");
  await type(page, password);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => !url.pathname.endsWith("/sign-in"));
}

async function journey(name, walk) {
  if (!WALKED.test(name)) return;
  const page = await visitor();
  await walk(page);
  assert.deepEqual(page.faults, [], `${name}: the browser complains`);
  await page.context().close();
  console.log(`ok ${name}`);
}

/** The name of a button whose server is told to those who do not see the card around it. */
function of(button, server) {
  return new RegExp(`^${button} ?: ${server}$`);
}

/** From the button to the page of the provider. */
async function goToProvider(page) {
  await page.goto(`/connections?server=${house.calendar}`);
  const again = await page.getByRole("button", { name: of("Connect again", "Calendar") }).count();
  await tabTo(page, `Connect${again ? " again" : ""}: Calendar`);
  await page.keyboard.press("Enter");
  const link = page.getByRole("link", { name: /^Continue to (127\.0\.0\.1|localhost):/ });
  await link.waitFor();
  await tabTo(page, (await link.textContent()).trim());
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Consent" }).waitFor();
}

/** Says yes at the provider, as often as it asks: some ask who it is, and then what is allowed. */
async function allow(page) {
  const left = (url) => url.origin === new URL(SERVICE).origin;
  while (!left(new URL(page.url()))) {
    const asked = page.url();
    await page.locator("#allow").click();
    await page.waitForURL((url) => url.href !== asked);
  }
}

async function confirm(page) {
  await page.getByRole("button", { name: "Confirm and connect" }).waitFor();
  assert.equal(new URL(page.url()).hash, "", "the result is out of the address bar");
  await tabTo(page, "Confirm and connect");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.searchParams.has("done") || url.search === "");
}

async function disconnect(page) {
  await page.goto(`/connections?server=${house.calendar}`);
  await page.getByLabel("Also revoke it at the provider: Calendar").check();
  await page.getByRole("button", { name: of("Disconnect", "Calendar") }).click();
  await page.getByRole("status").getByText("its provider revoked the grant").waitFor();
}

/** From our page to that of the company's issuer. */
async function goToCompany(page, link) {
  await tabTo(page, link);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Sign in at Acme" }).waitFor();
}

/** The company's account becomes one of whoever is signed in. */
async function link(page, eachStep = async () => {}) {
  await page.goto("/me/password");
  await tabTo(page, "Link your company account");
  await page.keyboard.press("Enter");
  const onward = page.getByRole("link", { name: /^Continue to 127\.0\.0\.1:/ });
  await onward.waitFor();
  await eachStep("company-leave");
  await goToCompany(page, (await onward.textContent()).trim());
  await allow(page);
  await page.getByRole("status").getByText("Your company account is linked.").waitFor();
  await eachStep("password-linked");
}

async function unlink(page) {
  await page.goto("/me/password");
  await tabTo(page, "Unlink");
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("Your company account is not linked any more.").waitFor();
}

await house.prepare();

await journey("sign-in", async (page) => {
  await page.goto("/questions");
  assert.equal(new URL(page.url()).pathname, "/t/default/sign-in");
  assert.equal(await page.evaluate(() => document.activeElement.id), "email");
  await type(page, "admin@localhost");
  await page.keyboard.press("Tab");
  await type(page, "a wrong password");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("Email or password is not right.").waitFor();
  assert.equal(await page.getByLabel("Email").inputValue(), "admin@localhost");
  assert.equal(await page.evaluate(() => document.activeElement.id), "password");
  await type(page, house.password);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/questions");
  await page.getByText("Nothing waits for you.").waitFor();
  const cookies = await page.context().cookies();
  assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]), [
    ["blw-session", true, "Lax"],
  ]);
  await tabTo(page, "Sign out");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/t/default/sign-in");
  await page.goBack();
  await page.reload();
  assert.equal(new URL(page.url()).pathname, "/t/default/sign-in", "back shows nothing");
});

await journey("password", async (page) => {
  await signIn(page);
  const change = async (current, next) => {
    await page.goto("/me/password");
    await tabTo(page, "Sign out");
    for (const text of [current, next, next]) {
      await page.keyboard.press("Tab");
      await type(page, text);
    }
    await page.keyboard.press("Enter");
  };
  await change("a wrong password", "another password");
  await page.getByRole("alert").getByText("That is not your password.").waitFor();
  for (const [current, next] of [
    [house.password, "another password"],
    ["another password", house.password],
  ]) {
    await change(current, next);
    await page.getByRole("status").getByText("Your password is changed").waitFor();
  }
});

await journey("servers", async (page) => {
  await signIn(page);
  await page.waitForURL("**/servers");
  const card = page.getByRole("listitem").filter({ hasText: "Demo" });
  await card.getByText("Ready").waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main", "the skip link skips");
});

await journey("question", async (page) => {
  const call = house.call("mcp__demo__greet", { name: "World" });
  const path = await house.question();
  await signIn(page, path);
  assert.equal(new URL(page.url()).pathname, path, "back to the question after signing in");
  await page.getByRole("heading", { name: "May this call happen?" }).waitFor();
  await page.getByRole("region", { name: "Input" }).getByText('"name": "World"').waitFor();
  const second = await page.context().newPage();
  await second.goto(path);
  await tabTo(page, "Allow once");
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("You allowed this call, once.").waitFor();
  assert.match(await call, /Hello|World/);

  await second.getByRole("button", { name: "Deny" }).click();
  await second.getByRole("alert").getByText("came too late").waitFor();
  await second.getByText("You allowed this call, once.").waitFor();

  const denied = house.call("mcp__demo__delete_everything", { scope: "the archive" });
  await house.question();
  await page.goto("/questions");
  await tabTo(page, "Look and decide: delete_everything");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "May this call happen?" }).waitFor();
  await tabTo(page, "Deny");
  await page.keyboard.press("Enter");
  await page.getByText("You denied this call. It does not happen.").waitFor();
  assert.match(await denied, /PERMISSION_DENIED/);
});

await journey("connect", async (page) => {
  await signIn(page);
  await goToProvider(page);
  await allow(page);
  await page.waitForURL("**/connections/confirm?*");
  await page.getByText("admin@localhost").first().waitFor();
  await confirm(page);
  await page.getByRole("status").getByText("Calendar is connected with your account.").waitFor();
  await page.getByText("Authorized (OAuth)").waitFor();
  await disconnect(page);

  await page.getByLabel("Your token at this server: Notes").fill("a token of the admin's");
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("Your secret for Notes is saved.").waitFor();
  await page.getByText("Configured (static)").waitFor();
  assert.ok(!(await page.content()).includes("a token of the admin's"), "it is not filled back");
  await page.getByRole("button", { name: of("Disconnect", "Notes") }).click();
  await page.getByRole("status").getByText("Notes is disconnected.").waitFor();
});

await journey("connect, and deny at the provider", async (page) => {
  await signIn(page);
  await goToProvider(page);
  await page.locator("#deny").click();
  await page.getByText("access was not allowed").waitFor();
  await page.getByRole("link", { name: "Your connections" }).click();
  await page.waitForURL("**/connections");
  await page.getByRole("listitem").filter({ hasText: "Calendar" }).getByText("Disconnected").waitFor();
});

await journey("connect, signed in anew on the way", async (page) => {
  await signIn(page);
  await goToProvider(page);
  await page.context().clearCookies({ name: "blw-session" });
  await allow(page);
  await page.waitForURL("**/sign-in?next=*");
  await signInAs(page, "admin@localhost", house.password);
  await confirm(page);
  await page.getByText("Authorized (OAuth)").waitFor();
  await disconnect(page);
});

await journey("connect, and another person confirms", async (page) => {
  await signIn(page);
  await goToProvider(page);
  await page.context().clearCookies({ name: "blw-session" });
  await allow(page);
  await page.waitForURL("**/sign-in?next=*");
  await signInAs(page, house.other.email, house.other.password);
  await page.getByText(house.other.email).first().waitFor();
  await page.getByRole("button", { name: "Confirm and connect" }).click();
  await page.getByRole("alert").getByText("it is late, used, or not yours").waitFor();
  const card = page.getByRole("listitem").filter({ hasText: "Calendar" });
  await card.getByText("Disconnected").waitFor();
});

await journey("connect in two tabs at once", async (page) => {
  await signIn(page);
  const second = await tab(page.context());
  await goToProvider(page);
  await goToProvider(second);
  // Neither kills the other's way back; the first that is confirmed counts.
  await allow(page);
  await allow(second);
  await second.getByRole("button", { name: "Confirm and connect" }).waitFor();
  await confirm(page);
  await page.getByText("Authorized (OAuth)").waitFor();
  await second.getByRole("button", { name: "Confirm and connect" }).click();
  await second.getByRole("alert").getByText("it is late, used, or not yours").waitFor();
  await second.getByText("Authorized (OAuth)").waitFor();
  assert.deepEqual(second.faults, []);
  // The address alone has no result, and without scripts the page says what to do.
  await page.goto(`/connections/confirm?server=${house.calendar}`);
  await page.getByRole("alert").getByText("There is no result of a sign-in").waitFor();
  await disconnect(page);
});

await journey("confirm without scripts", async () => {
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(`/connections/confirm?server=${house.calendar}#result=x`);
  await page.getByLabel("Email").fill("admin@localhost");
  await page.getByLabel("Password").fill(house.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("noscript").waitFor();
  assert.match(await page.locator("noscript").innerText(), /Scripts do not run here\./);
  assert.equal(await page.getByRole("button", { name: "Confirm and connect" }).count(), 0);
  await page.context().close();
});

await journey("link the company account", async (page) => {
  await signIn(page);
  await link(page);
  // Linked, it is the way in, also where passwords are none.
  await house.company({ localSignIn: false });
  const second = await visitor();
  await second.goto("/me/password");
  assert.equal(await second.getByLabel("Password").count(), 0);
  await goToCompany(second, "Sign in with Acme");
  await allow(second);
  await second.waitForURL("**/me/password");
  await second.getByText("admin@localhost").first().waitFor();
  assert.deepEqual(second.faults, []);
  await second.context().close();
  await house.company({});
  await unlink(page);
});

/** Every page at every width and in both lights: readable, nothing cut off; and a picture where wanted. */
await journey("every page in every form", async () => {
  const waiting = house.call("mcp__demo__greet", {
    name: "a person with quite a long name, so that lines are broken\u202e and\u200b hidden signs show",
  });
  const question = await house.question();
  const forms = [390, 1440].flatMap((width) => ["light", "dark"].map((light) => [width, light]));
  for (const [width, light] of forms) {
    // axe is put into the page, which its policy would forbid.
    const page = await visitor({
      viewport: { width, height: 900 },
      colorScheme: light,
      bypassCSP: true,
    });
    await page.goto("/t/default/sign-in");
    await look(page, "sign-in", width, light);
    await page.goto("/nowhere");
    await look(page, "not-found", width, light);
    await signIn(page);
    for (const [name, path] of [
      ["servers", "/servers"],
      ["password", "/me/password"],
      ["questions", "/questions"],
      ["question", question],
      ["decided", house.decided],
      ["connections", `/connections?server=${house.calendar}`],
      ["confirm", `/connections/confirm?server=${house.calendar}#result=x`],
      ["confirm-without-result", `/connections/confirm?server=${house.calendar}`],
    ]) {
      await page.goto(path);
      await look(page, name, width, light);
    }
    await page.goto(`/connections?server=${house.calendar}`);
    await page.getByRole("button", { name: of("Connect", "Calendar") }).click();
    await page.getByRole("link", { name: /^Continue to/ }).waitFor();
    await look(page, "leave", width, light);
    await page.goto("/connections");
    await look(page, "connections-pending", width, light);
    await page.getByRole("button", { name: of("Cancel it", "Calendar") }).click();
    await page.getByRole("status").waitFor();
    await link(page, (name) => look(page, name, width, light));
    await house.company({ localSignIn: false });
    await page.context().clearCookies({ name: "blw-session" });
    await page.goto("/t/default/sign-in");
    await look(page, "sign-in-company-only", width, light);
    await house.company({});
    await signIn(page);
    await unlink(page);
    await page.goto("/t/default/oidc/start");
    await allow(page);
    await page.getByText(house.ann.subject).waitFor();
    await look(page, "company-not-signed-in", width, light);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  }
  await house.decide(question, "deny");
  await waiting;
});

await journey("company sign-in, and deny", async (page) => {
  await page.goto("/t/default/sign-in");
  await goToCompany(page, "Sign in with Acme");
  await page.locator("#deny").click();
  await page.getByText("it was not allowed").waitFor();
  await page.getByRole("link", { name: "Back to signing in" }).click();
  await page.waitForURL("**/t/default/sign-in");
  const cookies = await page.context().cookies(SERVICE);
  assert.deepEqual(cookies, [], "nobody is signed in, and nothing is left of the attempt");
});

// After this the account is ann's, and can be linked to nobody else.
await journey("company sign-in", async (page) => {
  await house.company({ addsPeople: true });
  await page.goto("/questions");
  await goToCompany(page, "Sign in with Acme");
  await allow(page);
  await page.waitForURL("**/questions");
  await page.getByText(house.ann.email).first().waitFor();
  assert.ok(!page.url().includes("code"), "the code is out of the address bar");
  await tabTo(page, "Sign out");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/t/default/sign-in");
});

async function look(page, name, width, light) {
  const what = `${name} at ${width} px, ${light}`;
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= width, `${what}: ${wide} px wide`);
  assert.equal(await page.locator("h1").count(), 1, what);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`);
  assert.deepEqual(found, [], what);
  if (SCREENSHOTS) {
    mkdirSync(SCREENSHOTS, { recursive: true });
    await page.screenshot({ path: `${SCREENSHOTS}/${name}-${width}-${light}.png`, fullPage: true });
  }
}

await browser.close();
