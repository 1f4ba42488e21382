package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

type object = map[string]any

// installer is NOT Calico's operator, which cannot be had here. While the pod of the operator's Deployment is ready, it
// makes Calico of the Installation default as the operator's source says, as far as that is about this test: where
// agents run, where they write their CNI configuration, how they are replaced, their MTU, the address of nodes and the
// data plane. It writes its defaults into the Installation, and every second what others change in what it made, and
// takes that away when the Installation is deleted.
type installer struct {
	t    *testing.T
	rig  *scenario.Rig
	base []byte // all of Calico but its definitions, one after another
	pool string
	done sync.WaitGroup
}

// finalizer keeps the Installation until what was made of it is gone.
const finalizer = "tigera.io/operator-cleanup"

// install starts a stand-in for the operator that makes a version of Calico.
func install(t *testing.T, rig *scenario.Rig, calico string) *installer {
	t.Helper()
	text, err := rig.Manifest(t.Context(), "calico-typha", "--calico", calico, "--pod-cidr", "192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	documents := slices.DeleteFunc(strings.Split(text, "\n---\n"), func(d string) bool {
		return strings.Contains(d, "\nkind: CustomResourceDefinition\n")
	})
	text = strings.NewReplacer("namespace: kube-system", "namespace: "+system, "- name: FELIX_TYPHAK8SSERVICENAME",
		"- name: FELIX_TYPHAK8SNAMESPACE\n              value: "+system+
			"\n            - name: FELIX_TYPHAK8SSERVICENAME").Replace(strings.Join(documents, "\n---\n"))
	list, err := rig.Kubectl(t.Context(), strings.NewReader(text), "create",
		"--dry-run=client", "-o", "json", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range rig.NodeNames() {
		if out, err := rig.OnNode(t.Context(), node, "ctr", "-n", "k8s.io", "images", "tag",
			"registry.k8s.io/pause:3.10", "quay.io/tigera/operator:"+operators[calico]); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s := &installer{t: t, rig: rig, base: []byte(list)}
	ctx, stop := context.WithCancel(t.Context())
	s.done.Go(func() {
		said := ""
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
			if err := s.turn(ctx); err != nil && ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				t.Logf("the stand-in for the operator: %v", err)
			}
		}
	})
	t.Cleanup(s.done.Wait)
	t.Cleanup(stop)
	return s
}

func (s *installer) kubectl(ctx context.Context, stdin any, args ...string) (string, error) {
	text := ""
	if stdin != nil {
		data, err := json.Marshal(stdin)
		if err != nil {
			return "", err
		}
		text = string(data)
	}
	out, err := s.rig.Kubectl(ctx, strings.NewReader(text), args...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), err
}

// turn is one look at the Installation.
func (s *installer) turn(ctx context.Context) error {
	ready, err := s.kubectl(ctx, nil, "-n", "tigera-operator", "get", "pods", "-l", "name=tigera-operator", "-o",
		`jsonpath={.items[?(@.status.containerStatuses[0].ready==true)].metadata.name}`)
	if err != nil || ready == "" {
		return err
	}
	text, err := s.kubectl(ctx, nil, "get", "installations.operator.tigera.io", "default",
		"--ignore-not-found", "-o", "json")
	if err != nil || text == "" {
		return err
	}
	var in object
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return err
	}
	if at(in, "metadata", "deletionTimestamp") != nil {
		return s.remove(ctx, in)
	}
	if err := s.defaults(ctx, in); err != nil {
		return err
	}
	pools, _ := at(in, "spec", "calicoNetwork", "ipPools").([]any)
	if len(pools) != 1 {
		return fmt.Errorf("the Installation has the pools %v", pools)
	}
	if s.pool, err = s.kubectl(ctx, nil, "get", "ippools.crd.projectcalico.org", fmt.Sprint(at(pools[0], "name")), "-o",
		`jsonpath={.spec.cidr} {.spec.vxlanMode} {.metadata.labels.app\.kubernetes\.io/managed-by}`); err != nil {
		return err // it would not make one where there is another
	}
	made, err := s.render(in)
	if err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, made, "apply", "--server-side", "--force-conflicts", "--field-manager",
		"tigera-operator", "-f", "-"); err != nil {
		return err
	}
	return s.status(ctx)
}

// remove takes away what was made, and lets the Installation go.
func (s *installer) remove(ctx context.Context, in object) error {
	if _, err := s.kubectl(ctx, nil, "-n", system, "delete", "daemonset/calico-node", "deployment/calico-typha",
		"deployment/calico-kube-controllers", "--ignore-not-found", "--cascade=foreground"); err != nil {
		return err
	}
	kept, _ := at(in, "metadata", "finalizers").([]any)
	kept = slices.DeleteFunc(kept, func(f any) bool { return f == finalizer })
	return s.patch(ctx, object{"metadata": object{"finalizers": kept}})
}

func (s *installer) patch(ctx context.Context, patch object) error {
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = s.kubectl(ctx, nil, "patch", "installations.operator.tigera.io", "default", "--type", "merge",
			"--field-manager", "operator", "-p", string(data))
	}
	return err
}

// defaults writes into the Installation what it does not say.
func (s *installer) defaults(ctx context.Context, in object) error {
	patch := object{}
	if finalizers, _ := at(in, "metadata", "finalizers").([]any); !slices.Contains(finalizers, any(finalizer)) {
		patch["metadata"] = object{"finalizers": append(finalizers, finalizer)}
	}
	if at(in, "spec", "cni", "confDir") == nil {
		patch["spec"] = object{"cni": object{"type": "Calico", "ipam": object{"type": "Calico"},
			"binDir": "/opt/cni/bin", "confDir": "/etc/cni/net.d"}}
		put(in, "/etc/cni/net.d", "spec", "cni", "confDir")
	}
	if at(in, "spec", "nodeUpdateStrategy", "rollingUpdate") == nil {
		put(patch, object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 1}},
			"spec", "nodeUpdateStrategy")
		put(in, object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 1}},
			"spec", "nodeUpdateStrategy")
	}
	if len(patch) == 0 {
		return nil
	}
	return s.patch(ctx, patch)
}

// render is all that is made of the Installation.
func (s *installer) render(in object) (object, error) {
	var items []any
	for reader := json.NewDecoder(bytes.NewReader(s.base)); ; {
		var one object
		err := reader.Decode(&one)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if list, ok := one["items"].([]any); ok {
			items = append(items, list...)
			continue
		}
		items = append(items, one)
	}
	mode := "Disabled"
	if at(in, "spec", "calicoNetwork", "linuxDataplane") == "Nftables" {
		mode = "Enabled"
	}
	items = append(items, object{"apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus",
		"metadata": object{"name": "calico"}},
		object{"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration",
			"metadata": object{"name": "default"},
			"spec":     object{"nftablesMode": mode, "vxlanVNI": 4096, "vxlanPort": 4789, "healthPort": 9099}})
	for _, item := range items {
		one := item.(object)
		switch {
		case one["kind"] == "FelixConfiguration": // it stays
			continue
		case one["kind"] == "ConfigMap":
			if mtu := at(in, "spec", "calicoNetwork", "mtu"); mtu != nil {
				put(one, fmt.Sprint(mtu), "data", "veth_mtu")
			}
		case one["kind"] == "DaemonSet":
			daemonSet(one, in)
		}
		put(one, []any{object{"apiVersion": "operator.tigera.io/v1", "kind": "Installation", "name": "default",
			"uid": at(in, "metadata", "uid"), "controller": true, "blockOwnerDeletion": true}},
			"metadata", "ownerReferences")
	}
	return object{"apiVersion": "v1", "kind": "List", "items": items}, nil
}

// daemonSet gives the agents' DaemonSet what the Installation says.
func daemonSet(set, in object) {
	pod := at(set, "spec", "template", "spec").(object)
	selector, _ := at(in, "spec", "calicoNodeDaemonSet", "spec", "template", "spec", "nodeSelector").(object)
	merged := object{"kubernetes.io/os": "linux"}
	maps.Copy(merged, selector)
	pod["nodeSelector"], pod["terminationGracePeriodSeconds"] = merged, 5
	put(set, at(in, "spec", "nodeUpdateStrategy"), "spec", "updateStrategy")
	folder := at(in, "spec", "cni", "confDir")
	for _, volume := range pod["volumes"].([]any) {
		if volume := volume.(object); volume["name"] == "cni-net-dir" {
			volume["hostPath"] = object{"path": folder}
		}
	}
	method := "first-found"
	if at(in, "spec", "calicoNetwork", "nodeAddressAutodetectionV4", "kubernetes") == "NodeInternalIP" {
		method = "kubernetes-internal-ip"
	}
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range pod[list].([]any) {
			container := c.(object)
			env, _ := container["env"].([]any)
			env = slices.DeleteFunc(env, func(v any) bool {
				name := v.(object)["name"].(string)
				return strings.HasPrefix(name, "CALICO_IPV4POOL_") || name == "IP_AUTODETECTION_METHOD" ||
					name == "CNI_NET_DIR"
			})
			switch container["name"] {
			case "install-cni":
				env = append(env, object{"name": "CNI_NET_DIR", "value": folder})
			case "calico-node":
				env = append(env, object{"name": "NO_DEFAULT_POOLS", "value": "true"},
					object{"name": "IP_AUTODETECTION_METHOD", "value": method})
			}
			container["env"] = env
		}
	}
}

// status says that all is in order, or that it is not.
func (s *installer) status(ctx context.Context) error {
	text, err := s.kubectl(ctx, nil, "-n", system, "get", "daemonset/calico-node", "deployment/calico-typha",
		"deployment/calico-kube-controllers", "-o",
		`jsonpath={range .items[*]}{.metadata.generation}={.status.observedGeneration} {.status.desiredNumberScheduled}{.status.replicas}={.status.numberReady}{.status.readyReplicas} {end}`)
	if err != nil {
		return err
	}
	available := "True"
	for _, pair := range strings.Fields(text) {
		if one, other, _ := strings.Cut(pair, "="); one != other {
			available = "False"
		}
	}
	patch := fmt.Sprintf(
		`{"status":{"conditions":[{"type":"Available","status":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Degraded","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		available)
	_, err = s.kubectl(ctx, nil, "patch", "tigerastatus", "calico", "--subresource", "status",
		"--type", "merge", "-p", patch)
	return err
}

// at is a field of an object.
func at(tree any, path ...string) any {
	for _, field := range path {
		fields, _ := tree.(object)
		tree = fields[field]
	}
	return tree
}

// put gives a field of an object a value.
func put(in object, value any, path ...string) {
	for _, field := range path[:len(path)-1] {
		inner, ok := in[field].(object)
		if !ok {
			inner = object{}
			in[field] = inner
		}
		in = inner
	}
	in[path[len(path)-1]] = value
}

// planInstall writes a plan for Calico by its operator, whose manifests are upstream's: its definitions whole, its
// custom resources with nftables, since another policy agent is there.
func planInstall(t *testing.T, rig *scenario.Rig, calico string) string {
	t.Helper()
	var all []string
	for _, part := range []string{"operator-crds", "tigera-operator", "custom-resources"} {
		text, err := rig.Manifest(t.Context(), part, "--calico", calico)
		if err != nil {
			t.Fatal(err)
		}
		if part == "custom-resources" {
			text = strings.Replace(text, "  calicoNetwork:\n", "  calicoNetwork:\n    linuxDataplane: Nftables\n", 1)
		}
		all = append(all, text)
	}
	manifest, file := filepath.Join(rig.Dir, "operator.yaml"), filepath.Join(rig.Dir, "plan.yaml")
	if err := os.WriteFile(manifest, []byte(strings.Join(all, "\n---\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	flags, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	flags[slices.Index(flags, "--manifest")+1] = manifest
	if _, err := rig.Run(t.Context(), append([]string{"plan", "--strategy", "recreate", "--waves", "1,0", "--bake",
		"3s", "--max-lost", "10", "-o", file}, flags...)...); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInstallByOperator goes from flannel to a Calico that comes by its operator, of which there is a stand-in alone
// (installer): taken back when pods of one node are moved, then to the end.
func TestInstallByOperator(t *testing.T) {
	const version = "v3.31.0"
	rigtest.Full(t, "flannel to Calico by a stand-in for its operator, taken back and to the end")
	rig := rigtest.New(t, bin, "toop", 2, "flannel")
	operator := install(t, rig, version)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := rigtest.Start(t, rig, "here", "apply", planInstall(t, rig, version), "--yes")
	run.Until("Use Calico for new pods on toop-node-2")
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", "ls /etc/cni/net.d/theseus; ls /etc/cni/net.d")
		if err != nil || !strings.Contains(out, "calico-kubeconfig") {
			t.Errorf("on %s: %v\n%s", node, err, out)
		}
	}
	if !strings.HasSuffix(operator.pool, " Always tigera-operator") {
		t.Errorf("the operator would not take this pool for its own: %s", operator.pool)
	}
	rigtest.Run(t, rig, "there", 0, nil, "rollback")
	run.Ends(5, "undone: Install Calico without starting it on any node")
	nothingLost(t, rig, "there and back")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	unavailable := func() string {
		return kubectl(t, rig, "get", "nodes", "-o",
			`jsonpath={.items[*].status.conditions[?(@.type=="NetworkUnavailable")].status} {.items[*].spec.taints}`)
	}
	if now := unavailable(); strings.Contains(now, "True") || strings.Contains(now, "network-unavailable") {
		t.Errorf("taken back, nodes are marked as without a network: %s", now)
	}
	if left := kubectl(t, rig, "get", "namespaces,crds,clusterroles", "-o", "name"); strings.Contains(left, "calico") ||
		strings.Contains(left, "tigera") {
		t.Errorf("taken back, there is left: %s", left)
	}

	rigtest.Start(t, rig, "here", "apply", planInstall(t, rig, version), "--yes").Ends(0, "finished: done")
	nothingLost(t, rig, "flannel to Calico by its operator")
	want := fmt.Sprint(map[string]int{"calico-kube-controllers " + version: 1, "calico-node " + version: 2,
		"calico-typha " + version: 1})
	if got := versions(t, rig, system); got != want {
		t.Errorf("at the end: %s", got)
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	spec := kubectl(t, rig, "get", "installation", "default", "-o",
		`jsonpath={.spec.cni.confDir} {.spec.calicoNodeDaemonSet} {.spec.calicoNetwork.bgp} {.metadata.labels}`)
	if !strings.HasPrefix(spec, "/etc/cni/net.d ") || strings.Contains(spec, "theseus") {
		t.Errorf("at the end the Installation has: %s", spec)
	}
	if others := kubectl(t, rig, "get", "apiservers.operator.tigera.io,goldmanes,whiskers",
		"-o", "name"); strings.Count(others, "\n") != 2 {
		t.Errorf("of what else the operator is to make there is: %s", others)
	}
}
