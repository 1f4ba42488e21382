package outage

import (
	"strings"
	"testing"
)

// TestHindering: what keeps pods from starting is known again in a longer text, and the hint is about the pod's image.
func TestHindering(t *testing.T) {
	pulled := func(pod string) string {
		return "step agents: starting agents: " + Unpulled("n1", "reg.test/a:v1", pod, "ImagePullBackOff") +
			": Back-off pulling image"
	}
	for _, test := range []struct {
		text, reason, hint, not string
	}{
		{"", "", "", ""}, {"node n1 is down (not Ready)", "", "", ""},
		{"node n1 cannot get the image of pod", "", "", ""},
		{pulled("theseus-system/theseus-agent-x"), "ImageUnavailable", "--agent-image", "of the chart"},
		{pulled("theseus-system/theseus-controller-5d8f-x2"), "ImageUnavailable", "image.registry", "--agent-image"},
		{pulled("kube-system/calico-node-x"), "ImageUnavailable", "reg.test/a:v1", "--agent-image"},
		{Unpulled("n1", "a", "theseus-system/b", "InvalidImageName"), "ImageUnavailable", "", "helm"},
		{Unborn("Deployment/shop/a", "exceeded quota: q, requested: pods=1"), "QuotaExceeded", "ResourceQuota", ""},
	} {
		reason, hint := Hindering(test.text)
		if reason != test.reason || !strings.Contains(hint, test.hint) || (hint == "") != (reason == "") ||
			test.not != "" && strings.Contains(hint, test.not) {
			t.Errorf("%q: %q, %q", test.text, reason, hint)
		}
		if over := Resolved(test.text); (Hindrance(test.text) == "") != (reason == "") || IsResolved(test.text) ||
			Hindrance(over) != Hindrance(test.text) || !IsResolved(over) {
			t.Errorf("%q: %q, and when it is over %q", test.text, Hindrance(test.text), Hindrance(over))
		}
	}
	again, other := Unpulled("n1", "reg.test/a:v1", "kube-system/a", "ErrImagePull"),
		Unpulled("n1", "reg.test/a:v1", "kube-system/b", "ErrImagePull")
	if Hindrance(again) != Hindrance(strings.Replace(again, "ErrImagePull", "ImagePullBackOff: x", 1)) ||
		Hindrance(again) == Hindrance(other) {
		t.Errorf("%q and %q", Hindrance(again), Hindrance(other))
	}
	one, two := Unborn("Deployment/shop/a", "exceeded quota: q"), Unborn("Deployment/shop/b", "exceeded quota: q")
	if Hindrance(one) == Hindrance(two) ||
		Hindrance(one) != Hindrance(Unborn("Deployment/shop/a", "exceeded quota: r")) {
		t.Errorf("%q and %q", Hindrance(one), Hindrance(two))
	}
}
