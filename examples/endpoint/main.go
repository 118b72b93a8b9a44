// Endpoint is an HTTP service with a fence: it stores the released version of each lease, and refuses
// the request of a deployment that was replaced.
//
//	go run ./examples/endpoint
//
// The examples lock and endpoint belong together: docs/leases.md shows how a script that runs under
// the lease "deploy" sends its fencing token.
package main

import (
	"context"
	"io"
	"log"
	"net/http"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

func main() {
	versions := new(memstore.Register) // in production: store.Register("locks") of a dynamostore.Store
	log.Print("listens on http://localhost:8080")
	log.Fatal(http.ListenAndServe("localhost:8080", endpoint(versions)))
}

// A register keeps one value for each lease, and compares the token in the step of each write.
type register interface {
	Put(ctx context.Context, name string, generation int64, value string) error
}

// endpoint stores the body of a request as the version, if the token of the request is not stale.
func endpoint(versions register) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /version", fencehttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := fence.FromContext(r.Context()) // Require refuses requests without a token
		if token.Group != "locks" {
			http.Error(w, "this register is for the group locks", http.StatusForbidden)
			return
		}
		version, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
		if err == nil {
			err = versions.Put(r.Context(), token.Shard, token.Generation, string(version))
		}
		if err != nil {
			fencehttp.Error(w, r, err) // 412 for a stale token
		}
	})))
	return mux
}
