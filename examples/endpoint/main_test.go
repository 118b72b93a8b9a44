package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// TestEndpointRefusesTheStale: of two deployments, the late request of the first one is refused, and so
// are requests without a token and tokens of another group.
func TestEndpointRefusesTheStale(t *testing.T) {
	versions := new(memstore.Register)
	handler := service(versions)
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
		handler.ServeHTTP(w, r)
		if w.Code != request.want {
			t.Errorf("%q under %v: status %d, want %d", request.body, request.token, w.Code, request.want)
		}
	}
	if version, err := versions.Get(t.Context(), "deploy"); err != nil || version.Value != "v2" {
		t.Errorf("stored %v, %v", version, err)
	}
}

// client sends the fencing token that is in the context of a request.
var client = &http.Client{Transport: &fencehttp.Transport{}}

// put stores a version. ctx is the context of a tenure. If the error is a *checkpoint.StaleError, another holder has
// replaced this one, and the program has to stop.
func put(ctx context.Context, url, version string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(version))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return fencehttp.Check(response) // before the body is read
}

// TestClientLearnsThatItIsStale: the client of a deployment that was replaced gets a StaleError. Afterwards the service
// shows the version of the deployment that replaced it.
func TestClientLearnsThatItIsStale(t *testing.T) {
	handler := service(new(memstore.Register))
	server := httptest.NewServer(handler)
	defer server.Close()
	under := func(generation int64) context.Context {
		return fence.NewContext(t.Context(), fence.Token{Group: "locks", Shard: "deploy", Generation: generation})
	}
	for _, generation := range []int64{7, 8} {
		if err := put(under(generation), server.URL+"/version", fmt.Sprint("v", generation)); err != nil {
			t.Fatal(err)
		}
	}
	err := put(under(7), server.URL+"/version", "late")
	if stale, ok := errors.AsType[*checkpoint.StaleError](err); !ok || stale.Observed != 8 {
		t.Errorf("the late client got %v", err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/version/deploy", nil))
	if got := w.Body.String(); got != "v8, under generation 8\n" {
		t.Errorf("stored %q", got)
	}
}
