//go:build darwin || linux

package process

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// A Network forwards requests to a sink. It delays one of them: the first one for a given path.
type Network struct {
	URL     string        // where the requests are sent
	Delayed <-chan string // receives the generation of the delayed request

	arrive chan struct{}
	answer chan int
}

// NewNetwork starts a network to a sink.
func NewNetwork(t testing.TB, sink http.Handler, path string) *Network {
	delayed := make(chan string, 1)
	n := &Network{Delayed: delayed, arrive: make(chan struct{}), answer: make(chan int, 1)}
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		late := false
		if r.URL.Path == path {
			once.Do(func() { late = true })
		}
		if !late {
			sink.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		delayed <- r.Header.Get(fence.FieldGeneration)
		<-n.arrive
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		sink.ServeHTTP(answer, r)
		n.answer <- answer.Code
		w.Header()["Content-Type"] = answer.Header()["Content-Type"]
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	n.URL = server.URL
	t.Cleanup(server.Close)
	t.Cleanup(func() { // before the server is closed, which waits for its requests
		select {
		case <-n.arrive:
		default:
			close(n.arrive)
		}
	})
	return n
}

// Arrive lets the delayed request arrive at the sink, and returns the status of the answer.
func (n *Network) Arrive() int {
	close(n.arrive)
	return <-n.answer
}
