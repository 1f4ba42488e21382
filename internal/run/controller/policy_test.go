package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// TestPolicy: only the two objects as this version writes them count, whatever their labels.
func TestPolicy(t *testing.T) {
	both := func(change func(policy, binding *unstructured.Unstructured)) []*unstructured.Unstructured {
		all := manifest.ApprovalPolicy()
		all[0].SetCreationTimestamp(metav1.NewTime(noon))
		all[1].SetCreationTimestamp(metav1.NewTime(noon.Add(time.Minute)))
		change(&all[0], &all[1])
		return []*unstructured.Unstructured{&all[0], &all[1]}
	}
	set := func(object *unstructured.Unstructured, value any, path ...string) {
		if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		found  []*unstructured.Unstructured
		reason string
	}{
		"as written": {both(func(p, b *unstructured.Unstructured) {
			p.SetLabels(map[string]string{"helm.sh/chart": "x"})
		}), ""},
		"ignored failures": {both(func(p, b *unstructured.Unstructured) { set(p, "Ignore", "spec", "failurePolicy") }),
			v1alpha1.ReasonPolicyChanged},
		"another condition": {both(func(p, b *unstructured.Unstructured) {
			set(p, []any{map[string]any{"name": "x", "expression": "false"}}, "spec", "matchConditions")
		}), v1alpha1.ReasonPolicyChanged},
		"only a warning": {both(func(p, b *unstructured.Unstructured) {
			set(b, []any{"Warn"}, "spec", "validationActions")
		}), v1alpha1.ReasonPolicyChanged},
		"it is being deleted": {both(func(p, b *unstructured.Unstructured) { b.SetDeletionTimestamp(&now) }),
			v1alpha1.ReasonPolicyChanged},
		"no policy": {[]*unstructured.Unstructured{nil, both(func(p, b *unstructured.Unstructured) {})[1]},
			v1alpha1.ReasonPolicyMissing},
		"no binding": {[]*unstructured.Unstructured{both(func(p, b *unstructured.Unstructured) {})[0], nil},
			v1alpha1.ReasonPolicyMissing},
	} {
		got := judgePolicy(test.found)
		if got.Reason != test.reason || (got.Reason == "") != got.Since.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: %+v, want %q", name, got, test.reason)
		}
	}
}

// TestServed: what discovery of each version says about policies for approvals, and what a user reads who is asked to
// approve. Kubernetes 1.28 and 1.29 have them in another version only, which counts as none. An API server that does
// not answer is not taken for one without them.
func TestServed(t *testing.T) {
	const group = "/apis/admissionregistration.k8s.io/v1"
	resources := func(kinds ...string) string {
		text := ""
		for _, kind := range kinds {
			text += fmt.Sprintf(`,{"name":%q,"kind":%q,"namespaced":false,"verbs":["get"]}`,
				strings.ToLower(kind)+"s", kind)
		}
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"admissionregistration.k8s.io/v1",` +
			`"resources":[` + strings.TrimPrefix(text, ",") + "]}"
	}
	hooks := []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
	from130 := append(slices.Clone(hooks), "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	signers := Signers{List: []signed.Signer{{}}}
	for name, test := range map[string]struct {
		served   string // "" stands for an API server that is overloaded
		signers  Signers
		unserved bool
		reason   string
		says     string
	}{
		"v1.28, and a list of signers": {resources(hooks...), signers, true, v1alpha1.ReasonTooFewApprovals,
			"0 signed approvals of 1: `theseus approve m --plan FILE --sign KEY` adds one"},
		"v1.29 without a list": {resources(hooks...), Signers{}, true, v1alpha1.ReasonSignersMissing,
			"this API server does not check who approves, as Kubernetes does from 1.30 on, so only signed approvals " +
				"count, and the controller has no list of allowed signers: set allowedSigners of the chart"},
		"v1.30 without the chart's policy": {resources(from130...), Signers{}, false, v1alpha1.ReasonPolicyMissing,
			"ValidatingAdmissionPolicy/theseus-approvals does not exist, so the API server does not check"},
		"v1.36 without the chart's policy": {resources(append(from130, "MutatingAdmissionPolicy",
			"MutatingAdmissionPolicyBinding")...), Signers{}, false, v1alpha1.ReasonPolicyMissing, "upgrade the chart"},
		"overloaded": {"", signers, false, "", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Path != group: // a policy by its name
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			case test.served == "":
				w.WriteHeader(http.StatusInternalServerError)
			default:
				fmt.Fprint(w, test.served)
			}
		}))
		client, err := kube.New(&rest.Config{Host: server.URL}, "test")
		if err != nil {
			t.Fatal(err)
		}
		policy, err := readPolicy(t.Context(), client)
		server.Close()
		if (err != nil) != (test.reason == "") || policy.Unserved != test.unserved {
			t.Errorf("%s: %+v, %v", name, policy, err)
		}
		if err != nil {
			continue
		}
		s := Situation{Migration: migration(), Needed: 1, Policy: policy, Signers: test.signers, Now: noon}
		c := Decide(s).Conditions.Approved
		if c.True || c.Reason != test.reason || !strings.Contains(c.Message, test.says) {
			t.Errorf("%s: %+v, want %s: %s", name, c, test.reason, test.says)
		}
	}
}
