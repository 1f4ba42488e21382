package rehearse

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// oddNetwork is what the network of the original has besides Calico's own manifest, and a workload that asks another.
const oddNetwork = `apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: odd}
spec: {cidr: 198.19.48.0/22, blockSize: 28, vxlanMode: Always, ipipMode: Never, natOutgoing: false, disabled: true, nodeSelector: "disk == 'ssd'"}
---
apiVersion: v1
kind: Namespace
metadata: {name: odd}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: odd}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "theseus.dev/workload:lab", args: [serve, "--http=:8080"], ports: [{containerPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo, namespace: odd}
spec:
  replicas: 1
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      containers:
      - {name: echo, image: "theseus.dev/workload:lab", args: [serve, "--http=:8080"], ports: [{containerPort: 8080}, {containerPort: 8053, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: odd}
spec: {selector: {app: echo}, ports: [{name: web, port: 80, targetPort: 8080}, {name: dns, port: 53, targetPort: 8053, protocol: UDP}]}
`

// oddCalico makes a cluster with Calico whose pools, Felix and MTU are not the manifest's, and writes its snapshot.
func oddCalico(t *testing.T, file string) {
	t.Helper()
	rig := rigtest.New(t, bin, "rc", 2, "calico")
	kubectl(t, rig, nil, "label", "node", rig.NodeNames()[1], "disk=ssd")
	kubectl(t, rig, []byte(oddNetwork), "apply", "-f", "-")
	kubectl(t, rig, nil, "patch", "felixconfigurations.crd.projectcalico.org", "default", "--type=merge", "-p",
		`{"spec":{"vxlanPort":4799,"logSeverityScreen":"Warning"}}`)
	kubectl(t, rig, nil, "-n", "kube-system", "patch", "configmap", "calico-config", "--type=merge", "-p",
		`{"data":{"veth_mtu":"1380"}}`)
	for _, workload := range []string{"deployment/web", "deployment/echo"} {
		kubectl(t, rig, nil, "-n", "odd", "rollout", "status", workload, "--timeout=120s")
	}
	rigtest.Run(t, rig, "here", 0, nil, "snapshot", "-o", file)
	manifest, err := rig.ManifestFile(t.Context(), "calico")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(rig.Dir, "other.json") // of another cluster with the same network
	uid := kubectl(t, rig, nil, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	if err := os.WriteFile(other, []byte(strings.ReplaceAll(string(data), uid, "another")), 0o600); err != nil {
		t.Fatal(err)
	}
	rigtest.Run(t, rig, "here", 1, []string{"error: the scratch cluster has a network already, calico"}, "rehearse",
		"--from", other, "--pool", "198.19.16.0/20", "--network-manifest", manifest, "--agent-image",
		scenario.AgentImage, "--context", context(rig), "--dry-run")
}

// TestNetworkManifest: the snapshot of a cluster whose Calico has odd pools, Felix and MTU is rehearsed in a cluster
// without a network. It gets Calico by --network-manifest, with all settings as in the original, also while the change
// runs; and it has none when the copy is removed.
func TestNetworkManifest(t *testing.T) {
	rigtest.Full(t, "a rehearsal that installs the original's network, with its settings")
	snapshot := filepath.Join(t.TempDir(), "snapshot.json")
	if !t.Run("original", func(t *testing.T) { oddCalico(t, snapshot) }) {
		return
	}
	rig := rigtest.New(t, bin, "rn", 2, "none")
	if err := rig.Load(t.Context(), rigtest.ImagesOf(t, "../../..", "calico")); err != nil {
		t.Fatal(err)
	}
	manifest, err := rig.ManifestFile(t.Context(), "calico")
	if err != nil {
		t.Fatal(err)
	}
	flannel, err := rig.ManifestFile(t.Context(), "flannel")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"rehearse", "--from", snapshot, "--pool", "198.19.16.0/20", "--agent-image", scenario.AgentImage,
		"--context", context(rig), "--probe-interval", "60ms", "--max-lost", "50", "--max-gap", "10s", "--bake", "2s",
		"--once"}
	for _, topic := range []string{"mtu", "node", "felix", "kubeproxy", "ipam", "workload", "policy", "calico"} {
		args = append(args, "--accept", topic+"=a rehearsal without these checks")
	}
	rigtest.Run(t, rig, "here", 1, []string{"error: the scratch cluster has no network that Theseus knows"},
		append(args, "--dry-run")...)
	rigtest.Run(t, rig, "here", 1, []string{"error: --network-manifest installs flannel"},
		append(args, "--dry-run", "--network-manifest", flannel)...)
	args = append(args, "--network-manifest", manifest)
	rigtest.Run(t, rig, "here", 0, []string{"IPPool odd", "its own range 198.19.48.0/22", "veth_mtu 1380"},
		append(args, "--dry-run")...)

	file := filepath.Join(rig.Dir, "rehearsal.json")
	rigtest.Run(t, rig, "here", 0, []string{"installing the original's network", "REHEARSAL PASSED", "the copy stays"},
		append(args, "--yes", "--keep", "-o", file)...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Passed   bool
		Coverage []struct {
			Area       string
			Alike, All int
			Not        []string
		}
		Traffic []struct {
			Protocol, Unlike    string
			Asked, Lost, Leaked int
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	var areas []string
	for _, area := range result.Coverage {
		t.Logf("%s: %d of %d %v", area.Area, area.Alike, area.All, area.Not)
		if strings.HasPrefix(area.Area, "settings: ") || area.Area == "ranges of pods" {
			areas = append(areas, area.Area)
			if area.Alike != area.All || area.All == 0 {
				t.Errorf("%+v", area)
			}
		}
	}
	for _, want := range []string{"settings: IPPools", "settings: FelixConfigurations", "settings: MTU",
		"ranges of pods"} {
		if !slices.Contains(areas, want) {
			t.Errorf("%s is not compared: %q", want, areas)
		}
	}
	udp := false
	for _, one := range result.Traffic {
		udp = udp || one.Protocol == "UDP" && one.Unlike == "" && one.Asked > 0
		if one.Leaked > 0 {
			t.Errorf("a connection between stand-ins: %+v", one)
		}
	}
	if !udp {
		t.Errorf("stand-ins asked nothing by UDP: %+v", result.Traffic)
	}
	for path, want := range map[string]string{"{.spec.blockSize}": "28", "{.spec.nodeSelector}": "disk == 'ssd'"} {
		got := kubectl(t, rig, nil, "get", "ippools.crd.projectcalico.org", "odd", "-o", "jsonpath="+path)
		if got != want {
			t.Errorf("the pool of the copy: %s is %q, want %q", path, got, want)
		}
	}
	link, err := rig.OnNode(t.Context(), rig.NodeNames()[0], "sh", "-c",
		"ip -d link show vxlan.calico; ip link | grep cali")
	if err != nil || !strings.Contains(link, "dstport 4799") || !strings.Contains(link, "mtu 1380") {
		t.Errorf("the node's links: %v\n%s", err, link)
	}
	rigtest.Run(t, rig, "here", 0, []string{"of the network"}, "rehearse", "remove", "--context", context(rig),
		"--yes")
	if left := kubectl(t, rig, nil, "get", "daemonsets,crds", "-A", "-l", "rehearsal.theseus.dev/of", "-o",
		"name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
