package outage

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused reports whether an error may come from an API server that has just started, and that allows the same call
// shortly after: it has not yet read the roles, the token keys, or the objects of its admission plugins. A missing
// permission looks the same, so callers treat such an error as final after Bound. Refusals by policy (a quota, pod
// security, a webhook) are final.
func Refused(err error) bool {
	if err == nil {
		return false
	}
	status, ok := asStatus(err)
	if !ok {
		return false
	}
	return status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden && cold(status.Message)
}

// cold reports whether a message is that of an authorizer, or of an admission plugin that is not ready.
func cold(message string) bool {
	return strings.Contains(message, `" cannot `) || strings.Contains(message, "not yet ready to handle request") ||
		strings.Contains(message, "no relationship found between node")
}

// Said reports whether an error message of a CNI plugin or of another program on a node only means that the API server
// is unavailable, or refuses calls because it has just started.
func Said(text string) bool {
	text = strings.ToLower(text)
	if slices.ContainsFunc(untrustedWords, func(w string) bool { return strings.Contains(text, w) }) {
		return false
	}
	return strings.Contains(text, "forbidden") && cold(text) || slices.ContainsFunc(passingWords, func(w string) bool {
		return strings.Contains(text, w)
	})
}

// passingWords are in lower case: Go's network errors, the API server's and etcd's answers, and Calico's prefix for
// them.
var passingWords = []string{
	"connection refused", "connection reset by peer", "broken pipe", "i/o timeout",
	"tls handshake timeout", "unexpected eof", ": eof", "no route to host", "network is unreachable",
	"client connection lost", "http2: server sent goaway", "server closed idle connection",
	"context deadline exceeded", "client.timeout exceeded", "timed out waiting for the condition",
	"connection is unauthorized", "you must be logged in to the server",
	"not yet ready to handle request", "the server is currently unable to handle the request",
	"service unavailable", "too many requests", "the server has received too many requests",
	"the server was unable to return a response in the time allotted",
	"internal error occurred", "an error on the server", "internal server error", "bad gateway", "gateway timeout",
	"etcdserver: leader changed", "etcdserver: request timed out", "etcdserver: no leader",
	"etcdserver: too many requests", "before all known http paths have been installed",
	"apiserver not ready", "apiserver is shutting down",
}

// untrustedWords are TLS errors. Waiting does not help against them.
var untrustedWords = []string{"x509:", "tls: ", "server gave http response to https client"}

// asStatus returns the API server's answer in an error.
func asStatus(err error) (status struct {
	Code    int32
	Message string
}, ok bool) {
	var answer apierrors.APIStatus
	if ok = errors.As(err, &answer); ok {
		status.Code, status.Message = answer.Status().Code, answer.Status().Message
	}
	return status, ok
}
