// Package outage distinguishes transient errors of API calls from errors that a person must fix.
package outage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Passes reports whether an error is transient: the API server could not be reached or was not ready. An expired
// deadline of the caller is not transient.
func Passes(err error) bool {
	if Untrusted(err) {
		return false
	}
	var network net.Error // every *url.Error implements it, whatever it wraps
	if status, ok := asStatus(err); ok {
		return status.Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err) ||
			apierrors.IsTimeout(err) || apierrors.IsInternalError(err) ||
			apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}

// Expired reports whether a call did not end before its deadline, or was not begun because of it: client-go's limit of
// requests fails at once if a process stood still until the deadline was over.
func Expired(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		err != nil && strings.Contains(err.Error(), "would exceed context deadline")
}

// Untrusted reports whether a connection failed for lack of trust: a certificate was rejected, or one side does not
// speak TLS. Retrying does not help.
func Untrusted(err error) bool {
	var rejected *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	return errors.As(err, &rejected) || errors.As(err, &authority) || errors.As(err, &name) ||
		errors.As(err, &invalid) ||
		errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate")
}

// UntrustedHint is the hint for such an error.
const UntrustedHint = "check certificate-authority, client-certificate and server of the current context, and this " +
	"machine's clock: kubectl config view --minify"

// Steady returns a network error with a message that is the same for every retry, without the random local port. It
// returns other errors unchanged.
func Steady(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil || op.Addr == nil {
		return err
	}
	return steady{err, strings.ReplaceAll(err.Error(), op.Source.String()+"->", "")}
}

type steady struct {
	error
	text string
}

func (s steady) Error() string { return s.text }

func (s steady) Unwrap() error { return s.error }
