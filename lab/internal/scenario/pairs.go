package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// Pairs are Theseus' other changes, each with the strategies that support it.
func Pairs() []Swap {
	const onFlannel = `test -e /sys/class/net/flannel.1 && ! ls /sys/class/net | grep -E '^cali|vxlan.calico'`
	const onBIRD = `ip route show proto bird | grep -q ' via '`
	// an older version prints something else, or nothing
	const newest = ` && /opt/cni/bin/calico -v | grep -qxF v3.31.0`
	const inNFTables = `nft list tables | grep -q 'calico$' && ! (iptables-nft-save; iptables-legacy-save) 2>/dev/null | grep -q '^:cali-'`
	return []Swap{
		{Key: "bridge-adopt", Name: "bridge to Calico, by adoption", Network: "bridge", Do: (*Rig).adopt},
		{Key: "bridge", Name: "bridge to Calico", Network: "bridge", Do: (*Rig).Migrate},
		{Key: "kube-router", Name: "kube-router to Calico", Network: network.KubeRouter, Do: (*Rig).Migrate},
		{Key: "kindnet", Name: "kindnet to Calico", Network: "kindnet", Do: (*Rig).Migrate},
		{Key: "canal", Name: "Canal to Calico", Network: network.Canal, Do: (*Rig).Migrate},
		{Key: "weave-adopt", Name: "Weave Net to Calico, by adoption", Network: "weave", Nodes: 2, Do: (*Rig).adopt},
		{Key: "weave", Name: "Weave Net to Calico", Network: "weave", Nodes: 2, Do: (*Rig).Migrate},
		{Key: "weave-surge", Name: "Weave Net to Calico, nodes replaced", Network: "weave", Nodes: 2, Do: (*Rig).surge},
		{Key: "to-flannel", Name: "Calico to flannel", Before: (*Rig).DeleteAndInstall,
			Do: (*Rig).toFlannel, Done: onFlannel},
		{Key: "cilium-guide", Name: "flannel to Cilium, by Cilium's own guide", To: network.Cilium,
			Do: (*Rig).ciliumGuide, Done: onCilium},
		{Key: "cilium", Name: "flannel to Cilium", To: network.Cilium, Do: (*Rig).Migrate, Done: onCilium},
		{Key: "calico-cilium", Name: "Calico to Cilium", Network: "calico", To: network.Cilium,
			Before: (*Rig).ByInternalIP, Do: (*Rig).Migrate, Done: onCilium},
		{Key: "surge", Name: "flannel to Calico, nodes replaced", Nodes: 2, Do: (*Rig).surge},
		{Key: "upgrade", Name: "Calico v3.28.5 to v3.31.0", Network: "calico@v3.28.5",
			Do: (*Rig).newest, Done: onCalico + newest},
		{Key: "upgrade-next", Name: "Calico v3.30.1 to v3.31.0", Network: "calico@v3.30.1",
			Do: (*Rig).newest, Done: onCalico + newest},
		{Key: "upgrade-typha", Name: "Calico v3.28.5 to v3.31.0, with Typha",
			Network: network.CalicoTypha + "@v3.28.5", Do: (*Rig).newest, Done: onCalico + newest},
		{Key: "upgrade-bgp", Name: "Calico v3.28.5 to v3.31.0, with BGP's route reflectors",
			Nodes: 5, Network: network.CalicoBGP + "@v3.28.5", Do: (*Rig).newest, Done: onBIRD + newest},
		{Key: "reflectors", Name: "Calico, BGP's full mesh to route reflectors",
			Nodes: 5, Network: network.CalicoBGP, Before: (*Rig).mesh, Do: (*Rig).reflect, Done: onBIRD},
		{Key: "encapsulation", Name: "Calico, no encapsulation to VXLAN", Network: network.CalicoBGP,
			Do: (*Rig).encapsulate, Done: onCalico + " && ! " + onBIRD},
		{Key: "encapsulation-back", Name: "Calico, VXLAN to no encapsulation", Network: network.CalicoBGP,
			Before: (*Rig).encapsulate, Do: (*Rig).decapsulate,
			Done: onBIRD + " && ! test -e /sys/class/net/vxlan.calico"},
		{Key: "nftables", Name: "Calico's rules, iptables to nftables",
			Network: "calico", Do: (*Rig).nftables, Done: inNFTables},
		{Key: "pool", Name: "Calico, to another pool", Network: "calico", Do: (*Rig).otherPool},
	}
}

// change makes a plan with the given flags, and applies it.
func (r *Rig) change(ctx context.Context, flags ...string) error {
	plan := filepath.Join(r.Dir, "plan.yaml")
	args := []string{"plan", "-o", plan, "--agent-image", AgentImage, "--probe-interval", "20ms", "--max-lost", "20"}
	if _, err := r.Run(ctx, append(args, flags...)...); err != nil {
		return err
	}
	_, err := r.Run(ctx, "apply", plan, "--yes")
	return err
}

// toFlannel leaves Calico.
func (r *Rig) toFlannel(ctx context.Context) error {
	if err := r.EndPolicy(ctx); err != nil {
		return err
	}
	flags, err := r.FlannelFlags(ctx)
	if err != nil {
		return err
	}
	return r.change(ctx, flags...)
}

// EndPolicy removes the application's policy, which flannel would not enforce, with the client that it denies.
func (r *Rig) EndPolicy(ctx context.Context) error {
	if _, err := r.Kubectl(ctx, nil, "-n", workload.Namespace, "delete", "deployment/intruder",
		"--cascade=foreground", "--wait"); err != nil {
		return err
	}
	r.open = true
	_, err := r.Kubectl(ctx, nil, "-n", workload.Namespace, "delete", "networkpolicy/vault")
	return err
}

// FlannelFlags writes the manifest of flannel alone, and returns the flags of the change to it.
func (r *Rig) FlannelFlags(ctx context.Context) ([]string, error) {
	lab, err := r.Spec(ctx)
	if err != nil {
		return nil, err
	}
	nodes := lab.PodCIDR().String()
	file, err := r.ManifestFile(ctx, "flannel-alone", "--pod-cidr", nodes)
	if err != nil {
		return nil, err
	}
	return []string{"--to", "flannel", "--manifest", file, "--strategy", "adopt", "--pod-cidr", nodes}, nil
}

// newest upgrades Calico to the lab's own version.
func (r *Rig) newest(ctx context.Context) error {
	lab, err := r.Spec(ctx)
	if err != nil {
		return err
	}
	kind, _, _ := strings.Cut(r.Network, "@")
	file, err := r.ManifestFile(ctx, kind, "--pod-cidr", lab.PodCIDR().String())
	if err != nil {
		return err
	}
	return r.change(ctx, "--to", "calico", "--manifest", file)
}

func (r *Rig) encapsulate(ctx context.Context) error {
	return r.change(ctx, "--encapsulation", "vxlan")
}

func (r *Rig) decapsulate(ctx context.Context) error {
	return r.change(ctx, "--encapsulation", "none")
}

func (r *Rig) nftables(ctx context.Context) error {
	return r.change(ctx, "--dataplane", "nftables", "--accept", FelixAlone)
}

// mesh removes the route reflectors that the lab starts with.
func (r *Rig) mesh(ctx context.Context) error {
	return r.change(ctx, "--reflectors", "none")
}

// reflect makes two nodes route reflectors, instead of the full mesh.
func (r *Rig) reflect(ctx context.Context) error {
	const label = "reflects"
	if _, err := r.Kubectl(ctx, nil,
		slices.Concat([]string{"label", "node"}, r.NodeNames()[:2], []string{label + "="})...); err != nil {
		return err
	}
	return r.change(ctx, "--reflectors", "has("+label+")")
}

func (r *Rig) otherPool(ctx context.Context) error {
	lab, err := r.Spec(ctx)
	if err != nil {
		return err
	}
	return r.change(ctx, "--pool", lab.NewPodCIDR().String())
}

// surge replaces all nodes.
func (r *Rig) surge(ctx context.Context) error {
	r.Strategy = "surge"
	flags, err := r.SurgeFlags(ctx)
	if err != nil {
		return err
	}
	looked, err := r.looked(ctx)
	if err != nil {
		return err
	}
	err = r.change(ctx, append(flags, looked...)...)
	names, there := r.Kubectl(ctx, nil, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	if there == nil {
		r.Members = strings.Fields(names) // also after a failure
	}
	return err
}

// SurgeFlags are ChangeFlags that replace all nodes at once by other nodes of the lab. The clients' records on a node
// are copied before the node is removed.
func (r *Rig) SurgeFlags(ctx context.Context) ([]string, error) {
	r.Gone = filepath.Join(r.Dir, "gone")
	if err := os.MkdirAll(r.Gone, 0o755); err != nil {
		return nil, err
	}
	node := r.Lab + " node --name " + r.Name
	remove := fmt.Sprintf(`%s exec $THESEUS_NODE -- sh -c "%s" >%s/$THESEUS_NODE && %s remove $THESEUS_NODE`,
		node, Records, r.Gone, node)
	change, err := r.ChangeFlags(ctx)
	return slices.Concat([]string{"--waves", "0"}, hooks(node, remove), change), err
}

// hooks are the flags of the commands that add and remove nodes of a lab.
func hooks(node, remove string) []string {
	return []string{"--add-hook", `sh -c 'exec ` + node + ` add --taint "$THESEUS_TAINT"'`,
		"--remove-hook", "sh -c '" + remove + "'"}
}
