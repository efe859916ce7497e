// Starts the page of a report: everything that it shows is in the file.
startPage();
use(JSON.parse(document.getElementById("data").textContent));
showRun();
