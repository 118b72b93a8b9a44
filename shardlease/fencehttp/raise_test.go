package fencehttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// TestOnlyNoContentRaises: a fence is raised if the answer is a 204, as a Handler without Effect sends it. Whatever else
// answers at that address has raised nothing: a login page, a proxy, or an endpoint that has an effect.
func TestOnlyNoContentRaises(t *testing.T) {
	l := newLedger(func() {})
	answers := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, tc := range map[string]struct {
		handler http.Handler
		path    string
		want    string // a part of the error; empty: none
	}{
		"a handler without effect": {l.handler(), "/fence", ""},
		"a handler with an effect": {l.handler(), "/orders", "answered 201 Created"},
		"a login page":             {answers(200, "<form>"), "/fence", "answered 200 OK to a raise, and not 204"},
		"a queue":                  {answers(202, ""), "/fence", "answered 202 Accepted"},
		"a redirect":               {http.RedirectHandler("/login", http.StatusSeeOther), "/fence", "is not sent to another address"},
		"an unknown path":          {http.NotFoundHandler(), "/fence", "answered 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := serve(t, tc.handler)
			err := fencehttp.Raise(client, server.URL+tc.path)(under(t.Context(), "shard-0", 7), "shard-0", 7)
			if (err == nil) != (tc.want == "") || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	server, client := serve(t, l.handler())
	if err := fencehttp.Raise(client, server.URL+"/fence")(under(t.Context(), "shard-0", 6), "shard-0", 6); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a lower generation: %v", err)
	}
}
