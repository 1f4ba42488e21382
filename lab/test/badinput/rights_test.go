package badinput

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// rights gives a user who may only read to theseus.
func (s *stage) rights(t *testing.T) {
	file := rigtest.User(t, s.Rig, "reader",
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: reader}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subjects: [{kind: ServiceAccount, namespace: default, name: reader}]}
`)
	want := []string{"block api/rights", "this user may not create, patch", "error: findings block this change"}
	s.run(t, 3, want, s.planned("--kubeconfig", file)...)
	s.run(t, 3, want, "apply", s.plan, "--yes", "--kubeconfig", file)
}

// duties gives users the roles that theseus prints: each is enough for its duty, and each right of it is needed.
func (s *stage) duties(t *testing.T) {
	looker := rigtest.User(t, s.Rig, "looker",
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: looker}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, namespace: default, name: looker}]}`)
	s.run(t, 1, []string{"forbidden"}, "status", "--kubeconfig", looker)
	s.kubectl(t, rigtest.Rights(t, s.Rig, "nobody", "look"), "apply", "-f", "-")
	rigtest.Until(t, "the role view has the rights of look", func() bool {
		out, _ := s.said(t, "status", "--kubeconfig", looker)
		return strings.Contains(out, "this cluster has no migration")
	})
	for _, command := range []string{"status", "report"} {
		s.run(t, 1, []string{"this cluster has no migration"}, command, "--kubeconfig", looker)
	}

	roles := rigtest.Rights(t, s.Rig, "planner", "plan")
	planner := rigtest.User(t, s.Rig, "planner", roles)
	missing := func() string {
		t.Helper()
		out, err := s.said(t, "snapshot", "-o", t.TempDir()+"/snapshot.json", "--kubeconfig", planner)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	if out := missing(); strings.Contains(out, "forbidden") {
		t.Errorf("who may plan cannot see everything: %s", out)
	}
	s.run(t, 0, nil, s.planned("--kubeconfig", planner, "--accept", "api/rights=another one applies it")...)
	s.run(t, 3, []string{"block api/rights"}, s.planned("--kubeconfig", planner)...)
	for _, less := range without(t, s.kubectl(t, "", "get", "clusterrole", "theseus-plan", "-o", "json")) {
		s.kubectl(t, less.role, "apply", "-f", "-")
		rigtest.Until(t, "without "+less.what+" something is missing", func() bool {
			return strings.Contains(missing(), "no "+less.what+": ")
		})
	}

	s.kubectl(t, roles, "apply", "-f", "-")

	operator := rigtest.User(t, s.Rig, "operator", rigtest.Rights(t, s.Rig, "operator", "operate", "--plan", s.plan))
	s.run(t, 0, nil, s.planned("--kubeconfig", operator)...)
	s.run(t, 0, nil, "apply", s.plan, "--dry-run", "--kubeconfig", operator)
	for _, denied := range [][]string{{"get", "secrets", "-A"},
		{"create", "pods", "--subresource=exec", "-n", "default"}, {"impersonate", "users"},
		{"create", "serviceaccounts", "--subresource=token", "-n", "kube-system"}} {
		out, err := s.Kubectl(t.Context(), nil,
			append([]string{"--kubeconfig", operator, "auth", "can-i"}, denied...)...)
		if err == nil || !strings.Contains(out+err.Error(), "no") {
			t.Errorf("who operates may %v: %s", denied, out)
		}
	}
	s.kubectl(t, "", "delete", "namespace", "theseus-system")
	for _, name := range strings.Fields(s.kubectl(t, "", "get", "clusterrolebindings,clusterroles", "-o", "name")) {
		if strings.Contains(name, "/theseus-") {
			s.kubectl(t, "", "delete", name)
		}
	}
}

// said runs theseus, and returns all that it prints.
func (s *stage) said(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.Theseus, args...)
	command.Env = append(os.Environ(), "THESEUS_STATE_DIR="+t.TempDir())
	out, err := command.CombinedOutput()
	return string(out), err
}

// less is a role without one of its rights.
type less struct{ what, role string }

// without returns a ClusterRole as often as it lists something of Kubernetes' own, each without the right to that.
func without(t *testing.T, roles string) []less {
	t.Helper()
	var role struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Rules      []rule         `json:"rules"`
	}
	if err := json.Unmarshal([]byte(roles), &role); err != nil {
		t.Fatal(err)
	}
	role.Metadata = map[string]any{"name": role.Metadata["name"]}
	var all []less
	for i, one := range role.Rules {
		for _, resource := range one.Resources {
			group := one.APIGroups[0]
			ofKubernetes := !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
			// the lab has no kinds of Argo CD and Flux, and no AdminNetworkPolicies
			if !slices.Contains(one.Verbs, "list") || resource == "*" || !ofKubernetes ||
				group == "policy.networking.k8s.io" {
				continue
			}
			cut := role
			cut.Rules = slices.Clone(role.Rules)
			cut.Rules[i].Resources = slices.DeleteFunc(slices.Clone(one.Resources),
				func(r string) bool { return r == resource })
			if len(cut.Rules[i].Resources) == 0 {
				cut.Rules = slices.Delete(cut.Rules, i, i+1)
			}
			text, err := json.Marshal(cut)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, less{resource, string(text)})
		}
	}
	if len(all) < 15 {
		t.Fatalf("%d rights of %s", len(all), roles)
	}
	return all
}

type rule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
}
