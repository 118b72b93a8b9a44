// Package fences3 fences values in S3 by conditional writes: S3 stores an object only if its ETag is
// still the one that the writer has read (If-Match), or if it does not exist (If-None-Match).
//
// The generation is a part of the object's content, and so is a random id. It would not be enough to
// store the generation as metadata: the ETag of an object depends on its content alone, so an object
// that was replaced and written again has the old ETag, and a late write would pass.
//
// For large objects, and for objects that readers get directly, write the object under a name that
// contains the generation, and then Put that name as the value: readers follow it.
//
// It is a module of its own, so that users of the library do not get the requirements of S3.
package fences3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Register is a key-value sink in a bucket that is fenced by generations: it refuses to write a
// value under a lower generation than before. It has the methods of the registers of memstore and
// dynamostore, and passes their suite.
//
// A program that uses it must be allowed GetObject and PutObject on the objects, and ListBucket on
// the bucket: without the latter S3 does not report that an object is missing. Nothing may delete the
// objects, no lifecycle rule either: a value that is missing accepts every generation.
type Register struct {
	Client *s3.Client // required
	Bucket string     // required
	Prefix string     // the beginning of the keys, such as "fences/orders/"
}

// stored is the content of an object. The generation is a string, for readers in languages whose
// JSON numbers are floating-point numbers.
type stored struct {
	Generation int64  `json:"generation,string"`
	ID         string `json:"id"` // of the write: the ETag of each write differs
	Value      []byte `json:"value"`
}

// Put writes a value under a generation. It returns a *checkpoint.StaleError if the value was written
// under a higher one; [lease.Guarded.Put] defines the rule. It costs a GetObject and a PutObject.
//
// After another error the value may have been stored, or be stored later: but not over a value that
// was written since. To call Put again is safe.
func (r *Register) Put(ctx context.Context, name string, generation int64, value string) error {
	return r.put(ctx, name, generation, &value)
}

// Raise raises the generation of a value, which stays as it is: from then on, no lower generation overwrites it. It returns
// the errors of Put, and costs as much.
func (r *Register) Raise(ctx context.Context, name string, generation int64) error {
	return r.put(ctx, name, generation, nil)
}

// put writes a value; nil: that which it has.
func (r *Register) put(ctx context.Context, name string, generation int64, value *string) error {
	if _, err := (lease.Guarded{Name: name}).Replace(generation, value); err != nil {
		return err
	}
	for {
		at, etag, err := r.read(ctx, name)
		if err != nil {
			return err
		}
		next, err := at.Replace(generation, value)
		if err != nil {
			return err
		}
		if overtaken, err := r.replace(ctx, etag, next); !overtaken {
			return err
		}
	}
}

// Get reads a value. A value that was never written has generation 0.
func (r *Register) Get(ctx context.Context, name string) (lease.Guarded, error) {
	g, _, err := r.read(ctx, name)
	return g, err
}

func (r *Register) key(name string) string { return r.Prefix + url.PathEscape(name) }

// read returns the value and its ETag; empty if there is none.
func (r *Register) read(ctx context.Context, name string) (lease.Guarded, string, error) {
	g := lease.Guarded{Name: name}
	fail := func(err error) (lease.Guarded, string, error) {
		return g, "", fmt.Errorf("get s3://%s/%s: %w", r.Bucket, r.key(name), err)
	}
	out, err := r.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.Bucket, Key: aws.String(r.key(name))})
	if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
		return g, "", nil
	}
	if err != nil {
		return fail(err)
	}
	content, err := io.ReadAll(out.Body)
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return fail(err)
	}
	var at stored
	if err := json.Unmarshal(content, &at); err != nil || at.Generation < 1 || aws.ToString(out.ETag) == "" {
		return fail(errors.Join(lease.ErrMalformed, err))
	}
	g.Generation, g.Value = at.Generation, string(at.Value)
	return g, *out.ETag, nil
}

// replace stores next, on condition that the object is still the one with that ETag; without one,
// that there is no object. overtaken reports that the condition failed and nothing was stored.
//
// Each call sends one request: if the SDK sent a second one, the refusal of the second would not
// mean that the first was not stored.
func (r *Register) replace(ctx context.Context, etag string, next lease.Guarded) (overtaken bool, err error) {
	content, err := json.Marshal(stored{next.Generation, rand.Text(), []byte(next.Value)})
	if err != nil {
		return false, err
	}
	input := &s3.PutObjectInput{
		Bucket: &r.Bucket, Key: aws.String(r.key(next.Name)), Body: bytes.NewReader(content), ContentType: aws.String("application/json"),
	}
	if etag == "" {
		input.IfNoneMatch = aws.String("*")
	} else {
		input.IfMatch = &etag
	}
	_, err = r.Client.PutObject(ctx, input, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	response, ok := errors.AsType[*awshttp.ResponseError](err)
	if ok && (response.HTTPStatusCode() == http.StatusPreconditionFailed || response.HTTPStatusCode() == http.StatusConflict) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("put s3://%s/%s: outcome unknown: %w", r.Bucket, r.key(next.Name), err)
	}
	return false, nil
}
