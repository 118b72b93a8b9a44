package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// errNetwork is all that the SDK is told of a request or a reply that was lost.
var errNetwork = errors.New("integration: the network lost it")

// A fault is what happens to one request; the zero fault is none.
type fault struct {
	dropRequest bool   // it never reaches the service
	dropReply   bool   // it does, and nobody hears of it
	hold        bool   // it reaches the service when release is called, and nobody hears of it
	twin        bool   // it reaches the service now, and once more when release is called
	status      int    // answered in the service's stead, with code
	code        string // an exception of the service
	reason      string // a throttling reason
	edit        func(body map[string]any)
	editReply   func(body map[string]any)
}

// faulty is a transport that asks what is to happen to each request.
type faulty struct {
	next   http.RoundTripper
	decide func(action string, body []byte) fault
	done   func(action string, body []byte) // told of what the service has accepted; may be nil

	mu     sync.Mutex
	held   []heldRequest
	silent int            // accepted by the service, and the reply dropped
	calls  map[string]int // by action, as sent by the client
}

type heldRequest struct {
	action  string
	request *http.Request
	body    []byte
}

func newFaulty(decide func(action string, body []byte) fault) *faulty {
	return &faulty{decide: decide, calls: map[string]int{}}
}

// over puts the faults in front of a transport.
func (f *faulty) over(next http.RoundTripper) http.RoundTripper {
	f.next = next
	return f
}

func (f *faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.calls[action]++
	f.mu.Unlock()
	what := f.decide(action, body)
	if what.edit != nil {
		body = edited(body, what.edit)
	}
	if what.hold || what.twin {
		f.mu.Lock()
		f.held = append(f.held, heldRequest{action, request.Clone(context.WithoutCancel(request.Context())), body})
		f.mu.Unlock()
	}
	switch {
	case what.dropRequest, what.hold:
		return nil, errNetwork
	case what.code != "" || what.status != 0:
		return refuse(request, what), nil
	}
	response, err := f.send(action, request, body)
	if err != nil {
		return nil, err
	}
	if what.dropReply {
		if response.StatusCode == http.StatusOK {
			f.mu.Lock()
			f.silent++
			f.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return nil, errors.Join(errNetwork, response.Body.Close())
	}
	if what.editReply != nil {
		return editedReply(response, what.editReply)
	}
	return response, nil
}

// send lets a request reach the service.
func (f *faulty) send(action string, request *http.Request, body []byte) (*http.Response, error) {
	again := request.Clone(request.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := f.next.RoundTrip(again)
	if err == nil && response.StatusCode == http.StatusOK && f.done != nil {
		f.done(action, body)
	}
	return response, err
}

// pending is how many requests are held.
func (f *faulty) pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// release lets a held request reach the service.
func (f *faulty) release(i int) error {
	f.mu.Lock()
	late := f.held[i]
	f.held = slices.Delete(f.held, i, i+1)
	f.mu.Unlock()
	response, err := f.send(late.action, late.request, late.body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// refuse answers in the service's stead.
func refuse(request *http.Request, what fault) *http.Response {
	answer := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + what.code, "message": "injected"}
	if what.reason != "" {
		answer["throttlingReasons"] = []map[string]string{{"reason": what.reason, "resource": "arn:aws:dynamodb:x:y:table/z"}}
	}
	status := what.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	body, _ := json.Marshal(answer)
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Request: request, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func edited(body []byte, edit func(map[string]any)) []byte {
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&content) != nil {
		return body
	}
	edit(content)
	out, _ := json.Marshal(content)
	return out
}

func editedReply(response *http.Response, edit func(map[string]any)) (*http.Response, error) {
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	body = edited(body, edit)
	response.Header.Del("X-Amz-Crc32") // of the reply as it was
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, nil
}
