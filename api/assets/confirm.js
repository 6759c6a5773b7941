// The result of a sign-in at a provider stands in the fragment of this page, so that no log and no other
// site ever sees it. It goes from there into the form, and out of the address bar and the history.
"use strict";

const result = new URLSearchParams(location.hash.slice(1)).get("result");
history.replaceState(null, "", location.pathname + location.search);
if (result) {
  document.getElementById("result").value = result;
  document.getElementById("confirm").hidden = false;
} else {
  document.getElementById("nothing").hidden = false;
}
