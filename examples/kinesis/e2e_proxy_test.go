package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A proxy is a server between the consumers and kinesis-local that adds faults: every third
// answer repeats records of the answer before, and every fifth listing leaves out a shard.
type proxy struct {
	*httptest.Server

	mu       sync.Mutex
	before   map[string][]json.RawMessage // the last records of an answer, by its next iterator
	reads    int
	listings int
	repeated int // how many records were repeated
	omitted  int // how many shards were left out
}

func newProxy() (*proxy, error) {
	target, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL_KINESIS"))
	if err != nil {
		return nil, err
	}
	p := &proxy{before: map[string][]json.RawMessage{}}
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { p.prepare(r, target) },
		ModifyResponse: p.change,
		ErrorLog:       log.New(io.Discard, "", 0), // consumers that end during a request would cause errors
	})
	return p, nil
}

// iteratorHeader passes the iterator of a request to its answer.
const iteratorHeader = "X-Test-Iterator"

func (p *proxy) prepare(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	body, _ := io.ReadAll(r.In.Body)
	r.Out.Body = io.NopCloser(bytes.NewReader(body))
	var fields struct{ ShardIterator string }
	if json.Unmarshal(body, &fields) == nil {
		r.Out.Header.Set(iteratorHeader, fields.ShardIterator)
	}
}

// change changes an answer. It keeps fields that it does not know.
func (p *proxy) change(r *http.Response) error {
	_, op, _ := strings.Cut(r.Request.Header.Get("X-Amz-Target"), ".")
	if r.StatusCode != http.StatusOK || op != "GetRecords" && op != "ListShards" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	if op == "GetRecords" {
		err = p.repeat(fields, r.Request.Header.Get(iteratorHeader))
	} else {
		err = p.omit(fields)
	}
	if err != nil {
		return err
	}
	if body, err = json.Marshal(fields); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func (p *proxy) repeat(fields map[string]json.RawMessage, iterator string) error {
	var records []json.RawMessage
	if err := json.Unmarshal(fields["Records"], &records); err != nil {
		return err
	}
	var next string
	_ = json.Unmarshal(fields["NextShardIterator"], &next) // empty at the end of a shard
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads++; p.reads%3 == 0 {
		p.repeated += len(p.before[iterator])
		records = slices.Concat(p.before[iterator], records)
	}
	delete(p.before, iterator)
	if next != "" {
		p.before[next] = records[max(len(records)-20, 0):]
	}
	var err error
	fields["Records"], err = json.Marshal(records)
	return err
}

func (p *proxy) omit(fields map[string]json.RawMessage) error {
	var shards []json.RawMessage
	if err := json.Unmarshal(fields["Shards"], &shards); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listings++; p.listings%5 == 0 && len(shards) > 0 {
		i := p.listings / 5 % len(shards)
		shards = slices.Delete(shards, i, i+1)
		p.omitted++
	}
	var err error
	fields["Shards"], err = json.Marshal(shards)
	return err
}
