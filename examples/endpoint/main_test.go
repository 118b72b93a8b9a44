package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// TestEndpointRefusesTheStale: of two deployments, the late request of the first one is refused, and so
// are requests without a token and tokens of another group.
func TestEndpointRefusesTheStale(t *testing.T) {
	versions := new(memstore.Register)
	service := endpoint(versions)
	for _, request := range []struct {
		token *fence.Token
		body  string
		want  int
	}{
		{&fence.Token{Group: "locks", Shard: "deploy", Generation: 7}, "v1", http.StatusOK},
		{&fence.Token{Group: "locks", Shard: "deploy", Generation: 8}, "v2", http.StatusOK},
		{&fence.Token{Group: "locks", Shard: "deploy", Generation: 7}, "late", http.StatusPreconditionFailed},
		{&fence.Token{Group: "other", Shard: "deploy", Generation: 9}, "other", http.StatusForbidden},
		{nil, "no token", http.StatusPreconditionRequired},
	} {
		r := httptest.NewRequest(http.MethodPut, "/version", strings.NewReader(request.body))
		if request.token != nil {
			fields, err := request.token.Fields()
			if err != nil {
				t.Fatal(err)
			}
			for field, value := range fields {
				r.Header.Set(field, value)
			}
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		if w.Code != request.want {
			t.Errorf("%q under %v: status %d, want %d", request.body, request.token, w.Code, request.want)
		}
	}
	if version, err := versions.Get(t.Context(), "deploy"); err != nil || version.Value != "v2" {
		t.Errorf("stored %v, %v", version, err)
	}
}
