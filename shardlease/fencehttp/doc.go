// Package fencehttp carries fencing tokens over HTTP: from the context of a tenure into the headers
// of each request, and from the headers to a sink that compares the token.
//
// The client needs only a [Transport], because the contexts of a tenure contain its token:
//
//	client := &http.Client{Transport: &fencehttp.Transport{}}
//	request, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
//
// # Where the server compares
//
// The server has to compare the token and to apply the effect in one atomic step. A [Handler] does
// so: it runs the effect in the step of a [fence.Guard], such as a transaction, and sends the response
// when the step is complete. [Require] is for a handler that passes the token to a sink that compares
// it.
//
// The package has no middleware that compares the token before the handler runs, because such a
// middleware would check first and write afterwards. It would refuse a stale request that arrives
// after the first request of the successor. It would accept a stale request that arrived earlier and
// then waits: in a queue, for a lock, for a slow body, or in a paused process.
package fencehttp
