package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %q in it", err, words)
	}
}

// temporary is how the engine tells outages.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func TestClassify(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	call := func(err error) error { return &url.Error{Op: "Get", URL: "https://c", Err: err} }
	for _, test := range []struct {
		name   string
		err    error
		passes bool
	}{
		{"nothing", nil, false},
		{"refused", call(syscall.ECONNREFUSED), true},
		{"reset", call(syscall.ECONNRESET), true},
		{"cut off", call(io.EOF), true},
		{"wrapped", fmt.Errorf("list: %w", call(syscall.ECONNREFUSED)), true},
		{"joined", errors.Join(errors.New("other"), apierrors.NewServiceUnavailable("x")), true},
		{"unavailable", apierrors.NewServiceUnavailable("x"), true},
		{"internal", apierrors.NewInternalError(errors.New("etcd")), true},
		{"server timeout", apierrors.NewServerTimeout(resource, "get", 1), true},
		{"timeout", apierrors.NewTimeoutError("x", 1), true},
		{"too many", apierrors.NewTooManyRequests("x", 1), true},
		{"not found", apierrors.NewNotFound(resource, "p"), false},
		{"forbidden", apierrors.NewForbidden(resource, "p", errors.New("no")), false},
		{"conflict", apierrors.NewConflict(resource, "p", errors.New("no")), false},
		{"invalid", apierrors.NewBadRequest("no"), false},
		{"an agent's words", errors.New("the agent of a says: connection refused"), false},
		{"interrupted", call(context.Canceled), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := classify(test.err)
			if !errors.Is(got, test.err) {
				t.Errorf("%v is lost in %v", test.err, got)
			}
			if _, marked := got.(unavailable); marked != test.passes {
				t.Errorf("%v passes by itself: %t", test.err, marked)
			}
		})
	}
	if _, marked := classify(call(context.DeadlineExceeded)).(unavailable); marked {
		t.Error("the end of an action's time passes by itself")
	}
}

// TestClassifyRefusals: what a server says that has not read its roles yet is tried again, and what a policy forbids is
// not.
func TestClassifyRefusals(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err     error
		refused bool
	}{
		{apierrors.NewForbidden(resource, "p",
			errors.New(`User "ann" cannot get resource "pods" in API group "" in the namespace "x"`)), true},
		{apierrors.NewForbidden(resource, "p", errors.New("not yet ready to handle request")), true},
		{apierrors.NewUnauthorized("Unauthorized"), true},
		{apierrors.NewForbidden(resource, "p", errors.New("exceeded quota: small")), false},
		{apierrors.NewForbidden(resource, "p", errors.New(`violates PodSecurity "restricted:latest"`)), false},
		{apierrors.NewNotFound(resource, "p"), false},
		{nil, false},
	} {
		for name, got := range map[string]error{"classify": classify(test.err), "Passing": Passing(test.err)} {
			if errors.Is(got, engine.ErrRefused) != test.refused || !errors.Is(got, test.err) {
				t.Errorf("%s: %v became %v", name, test.err, got)
			}
		}
	}
}

func TestIgnoreNoKind(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	if err := ignoreNoKind(fmt.Errorf("x: %w", &meta.NoKindMatchError{})); err != nil {
		t.Error(err)
	}
	if err := ignoreNoKind(apierrors.NewNotFound(resource, "p")); err != nil {
		t.Error(err)
	}
	if err := ignoreNoKind(apierrors.NewServiceUnavailable("x")); err == nil {
		t.Error("an outage is no missing kind")
	}
}
