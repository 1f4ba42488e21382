package outage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
)

// TestErrorsOfRealConnections takes the errors from a client and a server that really disagree.
func TestErrorsOfRealConnections(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	start := func(secure bool, change func(*httptest.Server)) *httptest.Server {
		server := httptest.NewUnstartedServer(answer)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		change(server)
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		return server
	}
	leave := func(*httptest.Server) {}
	trusted, plain := start(true, leave), start(false, leave)
	demanding := start(true, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	})
	closed := start(false, leave)
	closed.Close()
	hangsUp := start(false, func(s *httptest.Server) {
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		})
	})
	silent := start(false, func(s *httptest.Server) {
		s.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	})
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	for _, test := range []struct {
		name              string
		ctx               context.Context
		client            *http.Client
		url               string
		passes, untrusted bool
	}{
		{"unknown authority", t.Context(), &http.Client{}, trusted.URL, false, true},
		{"another name", t.Context(), another(trusted), trusted.URL, false, true},
		{"a client certificate is missing", t.Context(), demanding.Client(), demanding.URL, false, true},
		{"no TLS there", t.Context(), &http.Client{}, "https" + plain.URL[len("http"):], false, true},
		{"nobody listens", t.Context(), &http.Client{}, closed.URL, true, false},
		{"it hangs up", t.Context(), &http.Client{}, hangsUp.URL, true, false},
		{"the caller's deadline", bounded, &http.Client{}, silent.URL, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(test.ctx, http.MethodGet, test.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := test.client.Do(request)
			if err == nil {
				response.Body.Close()
				t.Fatal("it answered")
			}
			err = fmt.Errorf("reading: %w", err)
			if Passes(err) != test.passes || Untrusted(err) != test.untrusted {
				t.Errorf("passes %v, untrusted %v: %v", Passes(err), Untrusted(err), err)
			}
		})
	}
}

// another is a client that expects another name of the server.
func another(server *httptest.Server) *http.Client {
	client := server.Client()
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "elsewhere.test"
	return client
}

func TestAnswersOfTheServer(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err    error
		passes bool
	}{
		{apierrors.NewServiceUnavailable("x"), true},
		{apierrors.NewInternalError(errors.New("x")), true},
		{apierrors.NewTooManyRequests("x", 1), true},
		{apierrors.NewForbidden(pods, "x", errors.New("x")), false},
		{apierrors.NewUnauthorized("x"), false},
		{apierrors.NewConflict(pods, "x", errors.New("x")), false},
		{apierrors.NewNotFound(pods, "x"), false},
		{errors.New("x"), false},
	} {
		if Passes(test.err) != test.passes {
			t.Errorf("%v: passes %v", test.err, !test.passes)
		}
	}
}

// TestExpired: client-go's limit of requests gives up a call whose deadline it would miss, with an error of its own.
func TestExpired(t *testing.T) {
	limit := flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := limit.Wait(ctx); err != nil || Expired(err) {
		t.Errorf("the first request: %v", err)
	}
	if err := limit.Wait(ctx); !Expired(fmt.Errorf("client rate limiter Wait returned an error: %w", err)) {
		t.Errorf("the second request: %v", err)
	}
	if !Expired(context.DeadlineExceeded) || Expired(context.Canceled) {
		t.Error("the errors of contexts are not told apart")
	}
}
