package fencehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// The server keeps one report for each shard in a register, which compares the token in the step of
// the write. The client needs the Transport and the context of a tenure.
func ExampleRequire() {
	register := new(memstore.Register) // in production that of a dynamostore.Store
	server := httptest.NewServer(fencehttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := fence.FromContext(r.Context())
		report, err := io.ReadAll(r.Body)
		if err == nil {
			err = register.Put(r.Context(), token.Shard, token.Generation, string(report))
		}
		if err != nil {
			fencehttp.Error(w, r, err)
		}
	})))
	defer server.Close()

	client := &http.Client{Transport: &fencehttp.Transport{Base: server.Client().Transport}}
	send := func(ctx context.Context, report string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, strings.NewReader(report))
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		return fencehttp.Check(response)
	}
	for _, generation := range []int64{8, 7} { // in a handler, use the context of the tenure as ctx
		ctx := fence.NewContext(context.Background(), fence.Token{Group: "orders", Shard: "shard-0", Generation: generation})
		fmt.Println(send(ctx, fmt.Sprint("report of ", generation)))
	}
	// Output:
	// <nil>
	// shard "shard-0": stale generation: written under generation 7, now at 8
}

// The effect is a part of the guard's step, and the response is sent when the step is complete.
func ExampleHandler() {
	guard := newLedger(func() {}) // in production a database, see the example with SQL
	mux := http.NewServeMux()
	mux.Handle("POST /orders", fencehttp.Handler[*[]string]{
		Guard: guard,
		Effect: func(w http.ResponseWriter, r *http.Request, step *[]string) error {
			order, err := io.ReadAll(r.Body)
			*step = append(*step, string(order))
			w.WriteHeader(http.StatusCreated)
			return err
		},
	})
	for _, generation := range []string{"8", "7"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("order of "+generation))
		r.Header.Set(fence.FieldGroup, "orders")
		r.Header.Set(fence.FieldShard, "shard-0")
		r.Header.Set(fence.FieldGeneration, generation)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, guard.entries)
	}
	// Output:
	// 201 map[shard-0:[order of 8]]
	// 412 map[shard-0:[order of 8]]
}
