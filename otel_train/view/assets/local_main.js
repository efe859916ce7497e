// Starts the page that the server's shell names.
startPage();
({ runs: () => runsPage(), run: () => runPage(), compare: () => whenPlotly(() => comparePage()) })[document.body.dataset.page]();
