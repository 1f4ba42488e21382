package outage

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// webhook and policy match the names in what an admission webhook and a ValidatingAdmissionPolicy answer.
var (
	webhook = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policy  = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request`)
)

// Denied says which rule of the cluster has refused a write, as a reason for a condition, and what a person can do
// about it. Both are empty for other errors, a missing permission included.
func Denied(err error) (reason, hint string) {
	status, ok := asStatus(err)
	if !ok {
		return "", ""
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return v1alpha1.ReasonNamespaceTerminating, "wait until the namespace is gone, create it again, and " +
			"install its " +
			"contents again; kubectl get namespace NAME -o yaml says what delays the deletion"
	}
	return DeniedBy(status.Message)
}

// DeniedBy is Denied for the text of such an answer, as an event has it.
func DeniedBy(message string) (reason, hint string) {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return v1alpha1.ReasonQuotaExceeded, "raise the ResourceQuota that the message names, or delete objects that " +
			"count against it"
	case strings.Contains(message, "violates PodSecurity"):
		return v1alpha1.ReasonPodSecurity, "allow such pods in the namespace: kubectl label --overwrite namespace " +
			"NAME pod-security.kubernetes.io/enforce=privileged"
	}
	for _, by := range []struct {
		named *regexp.Regexp
		what  string
	}{{webhook, "the admission webhook "}, {policy, "the ValidatingAdmissionPolicy "}} {
		if found := by.named.FindStringSubmatch(message); found != nil {
			return v1alpha1.ReasonAdmissionDenied, "make an exception for Theseus in " + by.what + found[1]
		}
	}
	return "", ""
}
