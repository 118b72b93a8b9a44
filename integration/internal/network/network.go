// Package network loses, delays, repeats and changes single HTTP requests to DynamoDB or S3 and their
// replies. Below the SDK, a test sees what a storetest.Link above the store does not: requests, and not calls.
package network

import (
	"bytes"
	"cmp"
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

// ErrLost is the error that the SDK receives for a request or reply that was lost.
var ErrLost = errors.New("integration: the network lost the request or its reply")

// A Fault is what the network does to one request; the zero Fault does nothing.
type Fault struct {
	DropRequest bool   // the request never reaches the service
	DropReply   bool   // the request reaches the service, and the reply is lost
	Hold        bool   // the request reaches the service when Release is called, and the reply is lost
	Twin        bool   // the request reaches the service now, and again when Release is called
	Status      int    // if not 0, the network answers with it and Code
	Code        string // an exception of the service
	Reason      string // a throttling reason of the service
	Edit        func(body map[string]any)
	EditReply   func(body map[string]any)
}

// Func is a transport that is a function.
type Func func(*http.Request) (*http.Response, error)

func (f Func) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// Faulty is a transport that calls a function to choose the fault of each request.
type Faulty struct {
	Done   func(action string, body []byte) // called for each request that the service has accepted; may be nil
	Calls  map[string]int                   // requests of the client, by action
	Silent int                              // requests that the service accepted and whose reply was lost

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

// NewFaulty returns a transport for one client.
func NewFaulty(decide func(action string, body []byte) Fault) *Faulty {
	return &Faulty{decide: decide, Calls: map[string]int{}}
}

// First returns a transport on which the next n requests of an action have a fault; n may be set
// later.
func First(n *int, action string, fault Fault) *Faulty {
	return NewFaulty(func(a string, _ []byte) Fault {
		if a != action || *n == 0 {
			return Fault{}
		}
		*n--
		return fault
	})
}

// Over adds the faults to a transport.
func (f *Faulty) Over(next http.RoundTripper) http.RoundTripper {
	f.next = next
	return f
}

// Partition returns the group and the kind in a partition key, without the bucket of a lease row.
func Partition(key string) (group, kind string) {
	if cut := strings.LastIndex(key, "/lease/"); cut >= 0 && strings.Trim(key[cut+len("/lease/"):], "0123456789") == "" {
		key = key[:cut+len("/lease")]
	}
	cut := max(strings.LastIndexByte(key, '/'), 0)
	return key[:cut], strings.TrimPrefix(key[cut:], "/")
}

// Read reads a request, which can be sent afterwards. The action of a request to S3 is its method.
func Read(request *http.Request) (action string, body []byte, err error) {
	_, action, _ = strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	if request.Body != nil {
		body, err = io.ReadAll(request.Body)
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	return cmp.Or(action, request.Method), body, err
}

func (f *Faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	action, body, err := Read(request)
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

// send sends a request to the service.
func (f *Faulty) send(action string, request *http.Request, body []byte) (*http.Response, error) {
	again := request.Clone(request.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := f.next.RoundTrip(again)
	if err == nil && response.StatusCode == http.StatusOK && f.Done != nil {
		f.Done(action, body)
	}
	return response, err
}

// Pending returns the number of held requests.
func (f *Faulty) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// Release sends a held request to the service, and returns the status of the reply.
func (f *Faulty) Release(i int) (status int, err error) {
	f.mu.Lock()
	late := f.held[i]
	f.held = slices.Delete(f.held, i, i+1)
	f.mu.Unlock()
	response, err := f.send(late.action, late.request, late.body)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// refuse answers instead of the service.
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

// Edited changes a request or a reply; a body that is no JSON stays as it is.
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
	response.Header.Del("X-Amz-Crc32") // the checksum of the unchanged reply
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, nil
}

// RemoveFence replaces the condition of an update by the condition that the row exists. It keeps a
// use of the old names and values, because the service refuses names and values without a use.
func RemoveFence(update map[string]any) {
	update["ConditionExpression"] = fmt.Sprintf("attribute_exists(%s) OR (%s)", attr.Key, update["ConditionExpression"])
}
