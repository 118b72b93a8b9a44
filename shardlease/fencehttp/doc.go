// Package fencehttp carries fencing tokens over HTTP: from the context of a tenure into the headers
// of each request, and from there to a sink that compares them.
//
// The client needs nothing but a [Transport]. The contexts of a tenure have its token:
//
//	client := &http.Client{Transport: &fencehttp.Transport{}}
//	request, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
//
// # Where the server compares
//
// The server has to compare the token and to apply the effect in one atomic step. A [Handler] does
// so: it runs the effect inside of the step of a [fence.Guard], such as a transaction, and sends the
// response when the step is complete. [Require] is for a handler that hands the token on to a sink
// which compares by itself.
//
// There is no middleware that compares before the handler, because it would check first and write
// afterwards. It would refuse the requests that arrive after the first one of the successor. It would
// let those pass that arrived before and wait: in a queue, for a lock, for a slow body, for a paused
// process.
package fencehttp
