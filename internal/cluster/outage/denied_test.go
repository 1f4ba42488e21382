package outage

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestDenied: what a cluster's own rules refuse has a reason and a hint, and is no missing permission.
// changes.TestAPIServer has the answers of a real API server.
func TestDenied(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(text string) error { return apierrors.NewForbidden(pods, "p", errors.New(text)) }
	ending := apierrors.NewForbidden(pods, "p", errors.New("because it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, test := range []struct {
		err          error
		reason, hint string
	}{
		{nil, "", ""}, {errors.New("exceeded quota"), "", ""},
		{forbidden(`User "a" cannot create resource "pods"`), "", ""},
		{fmt.Errorf("writing: %w", ending), "NamespaceTerminating", "create it again"},
		{forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"),
			"QuotaExceeded", "ResourceQuota"},
		{forbidden(`violates PodSecurity "restricted:latest": privileged`), "PodSecurity",
			"pod-security.kubernetes.io/enforce"},
		{forbidden(`admission webhook "validate.kyverno.svc" denied the request: no`),
			"AdmissionDenied", "validate.kyverno.svc"},
		{apierrors.NewForbidden(pods, "p", errors.New(
			"ValidatingAdmissionPolicy 'images' with binding 'all' denied request: no")), "AdmissionDenied", "images"},
	} {
		reason, hint := Denied(test.err)
		if reason != test.reason || !strings.Contains(hint, test.hint) || (hint == "") != (reason == "") {
			t.Errorf("%v: %q, %q", test.err, reason, hint)
		}
	}
}
