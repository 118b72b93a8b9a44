package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// ServeHTTP answers for the leader, and only after the table has confirmed that this candidate still leads. A candidate
// that was paused and replaced may believe that it leads, and would otherwise answer in the name of the new leader.
func (c *candidate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenure := c.leads.Load()
	if tenure == nil {
		http.Error(w, "this candidate does not lead", http.StatusServiceUnavailable)
		return
	}
	if err := tenure.Confirm(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "leader under generation %d, confirmed\n", tenure.Generation())
}

// answer answers requests at an address until ctx ends.
func (c *candidate) answer(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("answers at http://%s\n", listener.Addr())
	server := &http.Server{Handler: c}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
