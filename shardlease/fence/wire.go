package fence

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// The fields of a token on a wire: HTTP headers, or gRPC metadata. Names are percent-encoded,
// because neither carries every name. A generation is in decimal.
const (
	FieldGroup      = "shardlease-group"
	FieldShard      = "shardlease-shard"
	FieldGeneration = "shardlease-generation"
)

// Fields returns the fields of the token, or the error of [Token.Validate].
func (t Token) Fields() (map[string]string, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return map[string]string{
		FieldGroup:      url.PathEscape(t.Group),
		FieldShard:      url.PathEscape(t.Shard),
		FieldGeneration: strconv.FormatInt(t.Generation, 10),
	}, nil
}

// Parse reads a token from its fields. The argument values returns all values of a field. Parse
// accepts only fields as the method Fields returns them: each field once, and a generation without a
// sign or leading zeros. If there is no field at all, Parse returns ErrMissing. Its other errors match
// checkpoint.ErrInvalid.
func Parse(values func(field string) []string) (Token, error) {
	var t Token
	if len(values(FieldGroup))+len(values(FieldShard))+len(values(FieldGeneration)) == 0 {
		return t, ErrMissing
	}
	group, errGroup := name(values, FieldGroup)
	shard, errShard := name(values, FieldShard)
	generation, errGeneration := number(values, FieldGeneration)
	if err := errors.Join(errGroup, errShard, errGeneration); err != nil {
		return t, err
	}
	parsed := Token{Group: group, Shard: shard, Generation: generation}
	if err := parsed.Validate(); err != nil {
		return t, err
	}
	return parsed, nil
}

func name(values func(string) []string, field string) (string, error) {
	text, err := only(values, field)
	if err != nil {
		return "", err
	}
	name, err := url.PathUnescape(text)
	if err != nil || url.PathEscape(name) != text {
		return "", &checkpoint.InvalidError{Field: field, Rule: "must be percent-encoded"}
	}
	return name, nil
}

func number(values func(string) []string, field string) (int64, error) {
	text, err := only(values, field)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, &checkpoint.InvalidError{Field: field, Rule: "must be a decimal number of 64 bits"}
	}
	return n, nil
}

func only(values func(string) []string, field string) (string, error) {
	all := values(field)
	if len(all) != 1 {
		return "", &checkpoint.InvalidError{Field: field, Rule: "must be present once"}
	}
	return all[0], nil
}
