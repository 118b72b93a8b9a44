// Endpoint is an HTTP service with a fence: it stores the released version of each lease, and refuses
// the request of a deployment that was replaced.
//
//	go run ./examples/endpoint -listen localhost:8080
//
// GET /version/NAME answers with the stored version of a lease. The examples lock and endpoint belong together:
// docs/leases.md shows how a script that runs under the lease "deploy" sends its fencing token.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "the `ADDRESS` to listen on")
	if flag.Parse(); flag.NArg() > 0 {
		log.Fatalf("unknown argument %q: see endpoint -help", flag.Arg(0))
	}
	// A memstore.Register forgets its values and its fences in a restart. In production, use store.Register("locks")
	// of a dynamostore.Store.
	versions := new(memstore.Register)
	log.Printf("listens on http://%s", *listen)
	log.Fatal(http.ListenAndServe(*listen, service(versions)))
}

// A register keeps one value for each lease, and compares the token in the same step in which it writes. Packages
// memstore and dynamostore have such registers.
type register interface {
	Put(ctx context.Context, name string, generation int64, value string) error
	Get(ctx context.Context, name string) (lease.Guarded, error)
}

// service is the endpoint, and a page that shows the stored version to everybody, without a token.
func service(versions register) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", endpoint(versions))
	mux.HandleFunc("GET /version/{name}", func(w http.ResponseWriter, r *http.Request) {
		at, err := versions.Get(r.Context(), r.PathValue("name"))
		if err != nil {
			fencehttp.Error(w, r, err)
			return
		}
		fmt.Fprintf(w, "%s, under generation %d\n", at.Value, at.Generation)
	})
	return mux
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
