package migration

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// park has every agent move pods as on kernels that rename no interface in use: the cluster adds THESEUS_PARK=1 to the
// agents' pods. The returned function demands that the agents that run now were told so.
func park(t *testing.T, rig *scenario.Rig) (parks func()) {
	t.Helper()
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), strings.NewReader(stdin), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl(parkPolicy, "apply", "-f", "-")
	return func() {
		t.Helper()
		told := strings.Fields(kubectl("", "-n", "theseus-system", "get", "pods", "-l",
			"app.kubernetes.io/name=theseus-agent", "-o",
			`jsonpath={range .items[*]}{.spec.containers[0].env[?(@.name=="THESEUS_PARK")].value}.{"\n"}{end}`))
		if len(told) != len(rig.NodeNames()) {
			t.Fatalf("of %d nodes, %d have an agent", len(rig.NodeNames()), len(told))
		}
		for _, value := range told {
			if value != "1." {
				t.Fatalf("these agents do not all park pods: %q", told)
			}
		}
	}
}

const parkPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: park}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: theseus-system}}
    objectSelector: {matchLabels: {app.kubernetes.io/name: theseus-agent}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          [JSONPatch{op: "add", path: "/spec/containers/0/env/-",
                     value: Object.spec.containers.env{name: "THESEUS_PARK", value: "1"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: park}
spec: {policyName: park}
`
