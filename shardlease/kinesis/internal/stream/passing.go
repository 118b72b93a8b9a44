package stream

import (
	"errors"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Passing reports whether a failed request may succeed later, unchanged: after throttling, or a fault of the service,
// the network or the credentials. A denied request may succeed too, because people change policies and keys while
// workers run. A reader repeats such requests without limit. Kinesis would refuse an invalid request again.
func Passing(err error) bool {
	if errors.Is(err, ErrRecreated) || errors.Is(err, ErrDeleted) || errors.Is(err, ErrNoStream) {
		return false
	}
	return !Refused(err) || denied(err)
}

// Throttled reports whether Kinesis refused a request because there were too many.
func Throttled(err error) bool {
	switch codeOf(err) {
	case "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "ThrottlingException", "RequestLimitExceeded":
		return true
	}
	return false
}

// Refused reports whether a request was refused for a reason that lasts until somebody acts: it was invalid, or denied.
func Refused(err error) bool {
	status := refusal(err)
	if status == 0 || Throttled(err) || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests {
		return false
	}
	switch codeOf(err) {
	case "ExpiredTokenException", "ExpiredToken", "RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", // the SDK gets new credentials, and corrects its time
		"RequestTimeout", "RequestTimeoutException", "RequestAbortedException", "InternalFailure", "InternalFailureException":
		return false
	}
	return true
}

// denied reports whether a request was refused for lack of a permission, of valid credentials or of the use of a key.
func denied(err error) bool {
	switch status := refusal(err); status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return true
	}
	switch code := codeOf(err); code {
	case "AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId", "AuthFailure",
		"NotAuthorized", "OptInRequired", "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "IncompleteSignatureException",
		"MissingAuthenticationToken", "MissingAuthenticationTokenException":
		return true
	default:
		return strings.HasPrefix(code, "KMS")
	}
}

// refusal returns the HTTP status with which a request was refused, or 0 if it was not refused: the service had a fault, or
// there was no answer. If the SDK's own request for credentials was refused, that is no refusal of the request.
func refusal(err error) int {
	if of, ok := errors.AsType[*smithy.OperationError](err); ok {
		if _, within := errors.AsType[*smithy.OperationError](of.Err); within {
			return 0
		}
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	switch {
	case ok && response.HTTPStatusCode()/100 == 4:
		return response.HTTPStatusCode()
	case ok:
		return 0
	}
	switch codeOf(err) { // an event within a subscription has no status
	case "ResourceNotFoundException", "InvalidArgumentException", "ValidationException":
		return http.StatusBadRequest
	}
	return 0
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}
