package replica

import (
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var webhook = regexp.MustCompile(`admission webhook "([^"]+)" denied the request|failed calling webhook "([^"]+)"`)

// Cause is what an API server said, without what differs between objects that failed for one reason.
func Cause(err error) string {
	text := err.Error()
	if found := webhook.FindStringSubmatch(text); found != nil {
		if found[1] != "" {
			return "its admission webhook " + found[1] + " denies: " +
				strings.TrimSpace(after(text, "denied the request:"))
		}
		return "its admission webhook " + found[2] + " cannot be called: " +
			strings.TrimSpace(after(text, found[2]+`":`))
	}
	return text
}

func after(text, mark string) string {
	if _, rest, ok := strings.Cut(text, mark); ok {
		return rest
	}
	return text
}

// FailureHint says what to try when the mirror did not take an object.
func FailureHint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "failed calling webhook"):
		return "start the pods of the webhook on the mirror, or remove its configuration there until the copy is done"
	case strings.Contains(text, "admission webhook"):
		return "exempt the field manager's user or the namespaces from the webhook on the mirror, or leave " +
			"the objects out with --decide"
	case apierrors.IsForbidden(err):
		return "use a context with that right; kubectl auth can-i --list shows those of this one"
	case apierrors.IsTooManyRequests(err):
		return "the mirror is overloaded: use fewer --workers, or retry later; objects that were written are not " +
			"written again"
	case apierrors.IsInvalid(err):
		return "the mirror rejects an object of the original: change it there, or leave it out with --decide"
	}
	return "fix that and run the command again: objects that were written are not written again"
}
