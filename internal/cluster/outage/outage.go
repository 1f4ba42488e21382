// Package outage tells errors of API calls that pass by themselves from those that a person must see to.
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

// Passes says whether an error only means that the API server could not be asked just now. A deadline that the
// caller set does not count.
func Passes(err error) bool {
	if Untrusted(err) {
		return false
	}
	var network net.Error // every *url.Error calls itself one, whatever it wraps
	if status, ok := asStatus(err); ok {
		return status.Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) ||
			apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}

// Untrusted says whether the two sides of a connection do not trust one another: a certificate is not accepted,
// or one side does not speak TLS. Time does not mend that.
func Untrusted(err error) bool {
	var rejected *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	return errors.As(err, &rejected) || errors.As(err, &authority) || errors.As(err, &name) || errors.As(err, &invalid) ||
		errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate")
}

// UntrustedHint is what a person can do about it.
const UntrustedHint = "check certificate-authority, client-certificate and server of the current context, and this machine's clock: kubectl config view --minify"

// Steady is an error of the network with a text that is the same at each try: without the port that this side happened to
// have. Other errors stay as they are.
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
