package step_test

import (
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestAllowed holds what tasks may name: what networks leave, and nothing of the host or of other programs.
func TestAllowed(t *testing.T) {
	links := func(names ...string) step.Residue { return step.Residue{Links: names} }
	connecting := func(to string) step.ConnectArgs {
		pod := func(address string) step.Pod {
			return step.Pod{Namespace: "n", Name: "a", UID: "u", Address: address}
		}
		return step.ConnectArgs{Pairs: []step.Pair{{From: pod("10.0.0.1"), To: pod(to), Port: 80}}}
	}
	paths := func(names ...string) step.Residue { return step.Residue{Paths: names} }
	for name, test := range map[string]struct {
		verb string
		args any
		ok   bool
	}{
		"flannel's": {step.VerbClean, step.Residue{Links: []string{"flannel.1", "cni0"},
			Chains: []string{"FLANNEL-*"}, Paths: []string{"/run/flannel"}}, true},
		"pods' interfaces":           {step.VerbClean, links("cali*"), true},
		"some of them":               {step.VerbClean, links("cali0*"), true},
		"a bridge of the user's":     {step.VerbClean, links("mybridge"), true}, // the node looks at it
		"more than pods' interfaces": {step.VerbClean, links("c*"), false},
		"every interface":            {step.VerbClean, links("*"), false},
		"the loopback":               {step.VerbClean, links("lo"), false},
		"Docker's bridge":            {step.VerbClean, links("docker0"), false},
		"LXC's bridge":               {step.VerbClean, links("lxcbr0"), false},
		"the cluster's secrets":      {step.VerbInventory, paths("/etc/*"), true}, // by its nature, below
		"addresses of a network":     {step.VerbClean, paths("/var/lib/cni/networks/cbr0"), true},
		"up and out":                 {step.VerbClean, paths("/var/lib/cni/networks/../../kubelet"), false},
		"relative":                   {step.VerbClean, paths("var/lib/calico"), false},
		"a whole folder of the root": {step.VerbClean, paths("/etc"), false},
		"nothing":                    {step.VerbClean, paths(""), false},
		"the root":                   {step.VerbClean, paths("/"), false},
		"one with a slash behind":    {step.VerbClean, paths("/run/flannel/"), false},
		"an open folder":             {step.VerbClean, paths("/var/*/kubelet"), false},
		"kube-proxy's chains":        {step.VerbClean, step.Residue{Chains: []string{"KUBE-*"}}, false},
		"built-in chains":            {step.VerbClean, step.Residue{Chains: []string{"INPUT"}}, false},
		"everybody's rules":          {step.VerbClean, step.Residue{RuleComments: []string{"*"}}, false},
		"a policy routing rule":      {step.VerbClean, step.Residue{Rules: []string{"77 10.244.0.0/16"}}, true},
		"another table":              {step.VerbClean, step.Residue{Rules: []string{"254 10.244.0.0/16"}}, false},
		"rules from everywhere":      {step.VerbClean, step.Residue{Rules: []string{"77 0.0.0.0/0"}}, false},
		"rules from nowhere":         {step.VerbClean, step.Residue{Rules: []string{"77"}}, false},
		"rules of an interface":      {step.VerbClean, step.Residue{RuleLinks: []string{"eth0"}}, false},
		"kube-proxy's table":         {step.VerbClean, step.Residue{NFTables: []string{"ip kube-proxy"}}, false},
		"kube-proxy's sets":          {step.VerbClean, step.Residue{IPSets: []string{"KUBE-*"}}, false},
		"every plugin":               {step.VerbClean, step.Residue{Binaries: []string{"*"}}, false},
		"a plugin of many networks":  {step.VerbClean, step.Residue{Binaries: []string{"portmap"}}, false},
		"a program elsewhere": {step.VerbClean,
			step.Residue{Binaries: []string{"../../../usr/bin/kubelet"}}, false},
		"a configuration elsewhere": {step.VerbClean,
			step.Residue{ConfFiles: []string{"../../kubernetes/admin.conf"}}, false},
		"a configuration with its folder": {step.VerbClean,
			step.Residue{ConfFiles: []string{"/var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist"}}, false},
		"a plugin with its folder": {step.VerbClean, step.Residue{Binaries: []string{"/opt/cni/bin/flannel"}}, false},
		"every configuration":      {step.VerbClean, step.Residue{ConfFiles: []string{"*"}}, false},
		"one that is staged": {step.VerbClean, step.Residue{
			ConfFiles: []string{"theseus/10-calico.conflist"}}, true},
		"half of all routes": {step.VerbClean, step.Residue{Routes: []string{"0.0.0.0/1"}}, false},
		"keys of a Node":     {step.VerbClean, step.Residue{NodeLabels: []string{"kubernetes.io/os"}}, false},
		"taints of a Node": {step.VerbClean,
			step.Residue{Taints: []string{"node-role.kubernetes.io/control-plane"}}, false},
		"to copy others' rules": {step.VerbGuard, step.Guard{Tables: []string{"inet firewalld"}}, false},
		"to copy Calico's": {step.VerbGuard,
			step.Guard{Tables: []string{"ip calico"}, Chains: []string{"cali-*"}, Sets: []string{"cali*"}}, true},
		"to watch others' rules": {step.VerbDataplane, step.Dataplane{Chains: []string{"KUBE-*"}}, false},
		"to exempt all from NAT": {step.VerbJoin, step.JoinArgs{Old: []string{"0.0.0.0/0"}}, false},
		"to pin all routes":      {step.VerbPin, step.PinArgs{Within: []string{"0.0.0.0/2"}}, false},
		"to hold all routes":     {step.VerbHold, step.HoldArgs{Within: []string{"::/0"}}, false},
		"to keep no range":       {step.VerbRetain, step.RetainArgs{Within: []string{"all"}}, false},
		"to keep pods' routes":   {step.VerbRetain, step.RetainArgs{Within: []string{"198.19.0.0/20"}}, true},
		"to rewrite another's file": {step.VerbAdopt,
			step.AdoptArgs{To: step.Attachment{Restore: []string{"/etc/kubernetes/{id}"}}}, false},
		"to rewrite flannel's": {step.VerbAdopt,
			step.AdoptArgs{To: step.Attachment{Restore: []string{"/var/lib/cni/flannel/{id}"}}}, true},
		"to read a file elsewhere": {step.VerbAdoptable,
			step.AdoptArgs{From: step.Attachment{Conf: []string{"../../shadow"}}}, false},
		"to connect pods":                  {step.VerbConnect, connecting("10.0.0.2"), true},
		"to connect to the node itself":    {step.VerbConnect, connecting("127.0.0.1"), false},
		"to connect to a cloud's metadata": {step.VerbConnect, connecting("169.254.169.254"), false},
		"to settle by one elsewhere": {step.VerbSettle,
			step.SettleArgs{Network: step.Attachment{Conf: []string{"/etc/shadow"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			args, err := json.Marshal(test.args)
			if err != nil {
				t.Fatal(err)
			}
			if err := step.Allowed(test.verb, args); (err == nil) != test.ok {
				t.Errorf("%s %s: %v", test.verb, args, err)
			}
		})
	}
}

// TestOwn: names that no network has by itself are the node's to judge, which looks at what is there.
func TestOwn(t *testing.T) {
	residue := step.Residue{
		Links: []string{"cni0", "mybridge", "eth0", "cali*"},
		Paths: []string{"/run/flannel", "/etc/kubernetes", "/var/lib/cni/networks/*", "/var/lib/cni/networks/cbr0",
			"/var/lib/kubelet/pki", "/run/flannel/x"},
	}
	if got := residue.OwnLinks(); len(got) != 2 || got[0] != "mybridge" || got[1] != "eth0" {
		t.Errorf("interfaces: %q", got)
	}
	want := []string{"/etc/kubernetes", "/var/lib/cni/networks/*", "/var/lib/kubelet/pki", "/run/flannel/x"}
	got := residue.OwnPaths()
	if len(got) != len(want) {
		t.Fatalf("paths: %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("path %q, want %q", got[i], want[i])
		}
	}
}
