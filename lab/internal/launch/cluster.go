package launch

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/kubeapi"
	"github.com/theseus-cni/theseus/lab/internal/machine"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// step is a part of the way to a ready cluster.
type step struct {
	done string // what to say when it is over
	run  func(context.Context) error
}

func (l *launch) waitReady(ctx context.Context) error {
	defer l.api.Close()
	steps := []step{
		{"API server is ready", l.api.Ready},
		{"nodes are known", l.createNodes},
		{"network applied", l.applyNetwork},
		{"kubelets registered", l.waitRegistered},
	}
	if l.lab.Spec.Network == "none" { // without a network no node gets ready and no pod runs
		steps = append(steps, step{"CoreDNS applied", l.applyDNS})
	} else {
		steps = append(steps,
			step{"nodes are Ready", l.waitNodes},
			step{"DaemonSets are available", l.waitDaemonSets},
			step{"the CNI plugins can work", l.waitSubnets})
		if l.lab.Spec.Network == network.CalicoBGP {
			steps = append(steps, step{"BGP peers applied", l.applyPeers})
		}
		steps = append(steps,
			// Not before: a pod whose network is not quite there yet waits for more than 10 s to try again.
			step{"CoreDNS applied", l.applyDNS},
			step{"CoreDNS is available", l.waitDNS})
	}
	for _, s := range steps {
		if err := s.run(ctx); err != nil {
			return err
		}
		l.say("%s", s.done)
	}
	return nil
}

// createNodes makes the Node objects before the kubelets come, so that node n has the n-th range of
// the pod network whichever kubelet is first, and the label of a worker, which no kubelet may set itself,
// and the marks of its network.
// They have their addresses from the start: Weave Net counts them to know how many peers must agree.
func (l *launch) createNodes(ctx context.Context) error {
	for _, n := range l.lab.Spec.Numbers() {
		if err := l.api.Create(ctx, "/api/v1/nodes", nodeObject(l.lab.Spec, n, nil)); err != nil {
			return err
		}
	}
	return nil
}

func nodeObject(s spec.Lab, n int, taints []Taint) map[string]any {
	name, cidr := s.NodeName(n), s.NodePodCIDR(n).String()
	labels := map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": name,
		"kubernetes.io/os": "linux"}
	marks, annotations := network.NodeMarks(s.Network, n)
	maps.Copy(labels, marks)
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations},
		"status": map[string]any{"addresses": []map[string]string{
			{"type": "InternalIP", "address": s.NodeIP(n).String()},
			{"type": "Hostname", "address": name},
		}},
		"spec": map[string]any{"podCIDR": cidr, "podCIDRs": []string{cidr}, "taints": taints},
	}
}

func (l *launch) applyNetwork(ctx context.Context) error {
	parts := []string{l.lab.Spec.Network}
	if l.lab.Spec.Policy != "" && l.lab.Spec.Network != "flannel" { // flannel's has it already
		parts = append(parts, network.Firewall)
	}
	return l.apply(ctx, ClusterConfig(l.lab.Spec), parts...)
}

// applyPeers applies what Calico's BGP is told beyond its manifest.
func (l *launch) applyPeers(ctx context.Context) error { return l.apply(ctx, nil, network.Peers) }

func (l *launch) applyDNS(ctx context.Context) error { return l.apply(ctx, nil, "coredns") }

// apply applies documents and the manifests of parts in one go.
func (l *launch) apply(ctx context.Context, all []byte, parts ...string) error {
	s := l.lab.Spec
	params := Params(ctx, s, l.Cache)
	params.Applied = true
	for _, part := range parts {
		text, err := network.Manifest(part, params)
		if err != nil {
			return fmt.Errorf("manifest of %s: %w", part, err)
		}
		all = append(append(all, "\n---\n"...), text...)
	}
	return kubectl(ctx, s, all, "apply", "--server-side", "--validate=false", "-f", "-")
}

// Params are what the manifests of a lab depend on. Modules and programs come from the cache.
func Params(ctx context.Context, s spec.Lab, cache *build.Cache) network.Params {
	return network.Params{
		PodCIDR: s.PodCIDR(), ServiceCIDR: s.ServiceCIDR(), DNS: s.DNSIP(), Calico: build.CalicoComponent(s.Calico),
		Kubernetes: s.Kubernetes, Values: s.Values, WithoutProxy: s.ProxyMode == spec.NoProxy,
		ConfDir: s.ConfDir, BinDir: s.BinDir, APIServer: s.APIEndpoint(),
		Modules: func(component, module string) (string, error) {
			return cache.ModuleDir(ctx, component, module)
		},
		Program: func(name string) (string, error) { return cache.Binary(ctx, name) },
	}
}

func kubectl(ctx context.Context, s spec.Lab, in []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, s.KubeBinary,
		append([]string{"kubectl", "--kubeconfig", Kubeconfig(s)}, args...)...)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// ClusterConfig renders the ConfigMaps in which kubeadm leaves what a cluster is, and where tools
// look for it: the mode of kube-proxy and the ranges of addresses.
func ClusterConfig(s spec.Lab) []byte {
	indent := func(b []byte) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", "\n    ")
	}
	var proxy []byte
	if s.ProxyMode != spec.NoProxy {
		proxy = fmt.Appendf(nil, `apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system, labels: {app: kube-proxy}}
data:
  config.conf: |
%s
---
`, indent(machine.ProxyConfig(s, "/var/lib/kube-proxy/kubeconfig.conf")))
	}
	return fmt.Appendf(proxy, `apiVersion: v1
kind: ConfigMap
metadata: {name: kubeadm-config, namespace: kube-system}
data:
  ClusterConfiguration: |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: ClusterConfiguration
    clusterName: theseus-lab-%s
    kubernetesVersion: %s
    controlPlaneEndpoint: %s:6443
    networking:
      dnsDomain: cluster.local
      podSubnet: %s
      serviceSubnet: %s
`, s.Name, s.Kubernetes, s.ControlPlaneIP(), s.PodCIDR(), s.ServiceCIDR())
}

// waitAll waits until every one of the names has been seen in the state that holds wants.
func (l *launch) waitAll(ctx context.Context, collection string, names []string,
	holds func(kubeapi.Object) bool) error {
	missing := map[string]bool{}
	for _, n := range names {
		missing[n] = true
	}
	err := l.api.Watch(ctx, collection, func(o kubeapi.Object) bool {
		if holds(o) {
			delete(missing, o.Metadata.Name)
		}
		return len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("still waiting for %d of %d: %w", len(missing), len(names), err)
	}
	return nil
}

// NodeNames are the names of the nodes that a lab has, in the order of their numbers.
func NodeNames(s spec.Lab) []string {
	var names []string
	for _, n := range s.Numbers() {
		names = append(names, s.NodeName(n))
	}
	return names
}

func (l *launch) waitRegistered(ctx context.Context) error {
	return l.waitAll(ctx, "/api/v1/nodes", NodeNames(l.lab.Spec), func(o kubeapi.Object) bool {
		return len(o.Status.Conditions) > 0
	})
}

func (l *launch) waitNodes(ctx context.Context) error {
	return l.waitAll(ctx, "/api/v1/nodes", NodeNames(l.lab.Spec), func(o kubeapi.Object) bool {
		return o.True("Ready")
	})
}

func (l *launch) waitDNS(ctx context.Context) error {
	return l.waitAll(ctx, "/apis/apps/v1/namespaces/kube-system/deployments",
		[]string{"coredns"}, func(o kubeapi.Object) bool {
			return o.Status.ObservedGeneration >= o.Metadata.Generation &&
				o.Status.AvailableReplicas > 0 && o.Status.AvailableReplicas == o.Status.Replicas
		})
}

// waitDaemonSets waits for every DaemonSet that the manifests brought.
func (l *launch) waitDaemonSets(ctx context.Context) error {
	const collection = "/apis/apps/v1/daemonsets"
	names, err := l.api.List(ctx, collection)
	if err != nil || len(names) == 0 {
		return err
	}
	return l.waitAll(ctx, collection, names, func(o kubeapi.Object) bool {
		s := o.Status
		return s.ObservedGeneration >= o.Metadata.Generation &&
			s.DesiredNumberScheduled == l.lab.Spec.Nodes && s.NumberAvailable == s.DesiredNumberScheduled
	})
}

// waitSubnets waits until flannel's plugin can work. Its conflist, and with it the node's Ready, and
// its DaemonSet's pod come a moment before the file that the plugin reads.
func (l *launch) waitSubnets(ctx context.Context) error {
	if l.lab.Spec.Network != "flannel" {
		return nil
	}
	nodes, err := control.Dial(ControlSocket(l.lab.Spec)).Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		pid, err := l.lab.HostPid(n.Pid)
		if err != nil {
			return err
		}
		if err := awaitFile(ctx, filepath.Join("/proc", strconv.Itoa(pid), "root", "run", "flannel",
			"subnet.env")); err != nil {
			return fmt.Errorf("flannel on %s: %w", n.Name, err)
		}
	}
	return nil
}

func awaitFile(ctx context.Context, path string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not appear: %w", path, ctx.Err())
		}
	}
}
