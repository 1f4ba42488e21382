package outage

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Unpulled says that a node cannot get the image of a pod, which is namespace/name, and the kubelet's reason. Hindering
// knows it again.
func Unpulled(node, image, pod, reason string) string {
	return fmt.Sprintf("node %s cannot get the image %s of pod %s: %s", node, image, pod, reason)
}

// resolved begins a text of a run that says that a trouble is over.
const resolved = "resolved: "

// Resolved says that a trouble is over, of which a run has said what it is.
func Resolved(why string) string { return resolved + why }

// IsResolved reports whether a text is one of Resolved.
func IsResolved(text string) bool { return strings.HasPrefix(text, resolved) }

// Hindrance is the same for all texts about one thing that keeps pods from starting, which Hindering knows: the kubelet
// gives another reason each time. "" for other texts.
func Hindrance(text string) string {
	if found := unpulled.FindStringSubmatch(text); found != nil {
		return strings.Join(found[1:], " ")
	}
	reason, _ := DeniedBy(text)
	if found := unborn.FindStringSubmatch(text); found != nil {
		return reason + " " + found[1]
	}
	return reason
}

var unborn = regexp.MustCompile(`the API server rejects the pods of (\S+): `)

// Unborn says why the API server creates no pods of a workload, such as Deployment/shop/cart.
func Unborn(workload, why string) string {
	return fmt.Sprintf("the API server rejects the pods of %s: %s", workload, why)
}

var unpulled = regexp.MustCompile(`cannot get the image (\S+) of pod ([^/\s]+)/(\S+): `)

// Hindering says what keeps pods from starting, as a reason for a condition, and what a person can do about it. The
// text is one of a run, as its journal has it. Both are empty for other texts.
func Hindering(text string) (reason, hint string) {
	found := unpulled.FindStringSubmatch(text)
	if found == nil {
		return DeniedBy(text)
	}
	image, namespace, pod := found[1], found[2], found[3]
	hint = "correct the name of the image " + image + ", or let the nodes pull it: look at the registry, at the " +
		"proxy of the container runtime, and at the credentials (imagePullSecrets)"
	switch {
	case namespace != v1alpha1.Namespace:
	case strings.HasPrefix(pod, "theseus-controller-"):
		hint += "; image.registry and imagePullSecrets of the chart set them: helm upgrade"
	default: // a plan names the image of all of its pods here
		hint += "; `theseus image push REGISTRY` copies the images of a release to a registry of yours, and " +
			"--agent-image (spec.agentImage of a Change) names the one for the next plan"
	}
	return v1alpha1.ReasonImageUnavailable, hint
}
