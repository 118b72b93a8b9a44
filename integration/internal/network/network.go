// Package network loses, delays, repeats and changes single HTTP requests to DynamoDB and
// their replies.
package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// ErrLost is all that the SDK is told of a request or a reply that was lost.
var ErrLost = errors.New("integration: the network lost it")

// A Fault is what happens to one request; the zero Fault is none.
type Fault struct {
	DropRequest bool   // it never reaches the service
	DropReply   bool   // it does, and nobody hears of it
	Hold        bool   // it reaches the service when Release is called, and nobody hears of it
	Twin        bool   // it reaches the service now, and once more when Release is called
	Status      int    // answered in the service's stead, with Code
	Code        string // an exception of the service
	Reason      string // a throttling reason
	Edit        func(body map[string]any)
	EditReply   func(body map[string]any)
}

// Faulty is a transport that asks what is to happen to each request.
type Faulty struct {
	Done   func(action string, body []byte) // called with what the service has accepted; may be nil
	Calls  map[string]int                   // by action, as sent by the client
	Silent int                              // accepted by the service, and the reply dropped

	next   http.RoundTripper
	decide func(action string, body []byte) Fault
	mu     sync.Mutex
	held   []heldRequest
}

type heldRequest struct {
	action  string
	request *http.Request
	body    []byte
}

// NewFaulty makes a transport for one client.
func NewFaulty(decide func(action string, body []byte) Fault) *Faulty {
	return &Faulty{decide: decide, Calls: map[string]int{}}
}

// Over puts the faults in front of a transport.
func (f *Faulty) Over(next http.RoundTripper) http.RoundTripper {
	f.next = next
	return f
}

func (f *Faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.Calls[action]++
	f.mu.Unlock()
	what := f.decide(action, body)
	if what.Edit != nil {
		body = Edited(body, what.Edit)
	}
	if what.Hold || what.Twin {
		f.mu.Lock()
		f.held = append(f.held, heldRequest{action, request.Clone(context.WithoutCancel(request.Context())), body})
		f.mu.Unlock()
	}
	switch {
	case what.DropRequest, what.Hold:
		return nil, ErrLost
	case what.Code != "" || what.Status != 0:
		return refuse(request, what), nil
	}
	response, err := f.send(action, request, body)
	if err != nil {
		return nil, err
	}
	if what.DropReply {
		if response.StatusCode == http.StatusOK {
			f.mu.Lock()
			f.Silent++
			f.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return nil, errors.Join(ErrLost, response.Body.Close())
	}
	if what.EditReply != nil {
		return editedReply(response, what.EditReply)
	}
	return response, nil
}

// send lets a request reach the service.
func (f *Faulty) send(action string, request *http.Request, body []byte) (*http.Response, error) {
	again := request.Clone(request.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := f.next.RoundTrip(again)
	if err == nil && response.StatusCode == http.StatusOK && f.Done != nil {
		f.Done(action, body)
	}
	return response, err
}

// Pending is how many requests are held.
func (f *Faulty) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// Release lets a held request reach the service.
func (f *Faulty) Release(i int) error {
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
func refuse(request *http.Request, what Fault) *http.Response {
	answer := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + what.Code, "message": "injected"}
	if what.Reason != "" {
		answer["throttlingReasons"] = []map[string]string{{"reason": what.Reason, "resource": "arn:aws:dynamodb:x:y:table/z"}}
	}
	status := what.Status
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

// Edited changes a request or a reply; one that is no JSON stays as it is.
func Edited(body []byte, edit func(map[string]any)) []byte {
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
	body = Edited(body, edit)
	response.Header.Del("X-Amz-Crc32") // of the reply as it was
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, nil
}

// RemoveFence leaves of an update's condition that there is a row. What it said stays
// beside, because the service refuses names and values that nothing uses.
func RemoveFence(update map[string]any) {
	update["ConditionExpression"] = fmt.Sprintf("attribute_exists(%s) OR (%s)", attr.Key, update["ConditionExpression"])
}
