package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Every refusal is one error line, one hint line and its code, and changes nothing.
func TestRefusals(t *testing.T) {
	tests := []struct {
		args string
		code int
		want string
	}{
		{"frob", 2, "error: unknown command \"frob\" for \"theseus-lab\"\n"},
		{"up --frob", 2, "error: unknown flag: --frob\n"},
		{"up now", 2, "error: accepts 0 arg(s), received 1\n"},
		{"up --network frob", 1, "error: there is no network \"frob\"\n" +
			"hint: use --network flannel, calico, calico-bgp, calico-typha, cilium, weave, bridge, kindnet, " +
			"kube-router, canal or none\n"},
		{"up --kubernetes v1.35.0", 1, "error: Kubernetes \"v1.35.0\" is not one of the versions that can be built\n" +
			"hint: use --kubernetes v1.36.3 or v1.34.4\n"},
		{"up --runtime frob", 1, "error: there is no runtime \"frob\"\n" +
			"hint: use --runtime containerd-2.3 or containerd-1.6\n"},
		{"up --kube-proxy none --network calico", 1, "error: the network calico does not replace kube-proxy: without " +
			"one, no Service works\nhint: theseus-lab up --help lists the possible values\n"},
		{"up --set ipam.mode=kubernetes", 1, "error: the network flannel has no chart whose values could be set\n" +
			"hint: theseus-lab up --help lists the possible values\n"},
		{"build --network flannel,frob", 1, "error: there is no network \"frob\"\n" +
			"hint: use --network flannel, calico, calico-bgp, calico-typha, cilium, weave, bridge, kindnet, " +
			"kube-router, canal or none\n"},
		{"up --network kube-router --policy kube-router", 1, "error: the network kube-router enforces policy itself\n" +
			"hint: leave out --policy\n"},
		{"up --network calico --calico v3.1.0", 1, "error: Calico \"v3.1.0\" is not one of the versions that can be " +
			"built\nhint: use --calico v3.31.0, v3.30.1 or v3.28.5\n"},
		{"up --network weave --calico v3.28.5", 1, "error: --calico cannot be combined with the network weave\n" +
			"hint: use --network calico or calico-typha; or flannel, which a lab changes to Calico\n"},
		{"build --kubernetes 1.34", 1, "error: Kubernetes \"1.34\" is not one of the versions that can be built\n" +
			"hint: use --kubernetes v1.36.3 or v1.34.4\n"},
		{"up --policy frob", 1, "error: there is no policy agent \"frob\"\n"},
		{"up --nodes 17", 1, "error: 17 nodes: a lab has 1 to 16\n"},
		{"up --name Too-Long", 1, "error: lab name \"Too-Long\" is not 1 to 6 lower-case letters and digits\n"},
		{"down", 1,
			"error: no such lab: a\nhint: theseus-lab status lists the labs; theseus-lab up --name a makes one\n"},
		{"--name b kubeconfig", 1, "error: no such lab: b\n"},
		{"kubectl --name c get pods", 1, "error: no such lab: c\n"},
		{"node kill 1", 1, "error: no such lab: a\n"},
		{"node remove 1", 1, "error: no such lab: a\n"},
		{"node add", 1, "error: no such lab: a\n"},
		{"node add --count 0", 2, "error: 0 nodes: at least one\n"},
		{"node add --taint frob", 2, "error: \"frob\" is not a taint such as key=value:NoSchedule\n"},
		{"node exec 1", 2, "error: requires at least 2 arg(s), only received 1\n"},
		{"link 1", 2, "error: nothing to do: give --loss, --drop or --clear\n"},
		{"link 1 --loss much", 2, "error: \"much\" is not a share of packets, such as 1%\n"},
		{"link 1 --drop 8472", 2, "error: \"8472\" is not PROTO:PORT, such as udp:8472\n"},
		{"bench-loss --runs 0", 2, "error: 0 runs: at least one\n"},
		{"bench-flags --runs 0", 2, "error: 0 runs and 2 controls: at least one of each\n"},
		{"bench-loss --only a,z", 2, "error: --only: there is no \"z\"\n"},
		{"compare --networks flannel,frob", 2, "error: there is no network \"frob\"\n" +
			"hint: use --networks with two or more of flannel, calico, " +
			"calico-bgp, calico-typha, cilium, weave, bridge, kindnet, kube-router, canal, calico-nftables\n"},
		{"compare --networks none,flannel", 2, "error: there is no network \"none\"\n"},
		{"compare --networks flannel,calico,flannel", 2, "error: the network flannel is named twice\n"},
		{"compare --networks calico", 2, "error: 1 network: a comparison needs two or more\n"},
		{"compare --rounds 0", 2, "error: 0 rounds: at least one\n"},
		{"compare --nodes 1", 2, "error: 1 nodes: 2 to 16\n"},
		{"compare --name sixlet", 2, "error: lab name \"sixlet\": at most 5 letters and digits"},
		{"rehearse", 2, "error: --from is missing: it names the snapshot of the original\nhint: theseus snapshot "},
		{"rehearse --from - -- --to calico", 2, "error: --from - cannot be rehearsed: the snapshot is read more than " +
			"once\nhint: save the snapshot to a file"},
		{"rehearse --from s.json", 2, "error: no change is named\nhint: theseus-lab rehearse --from "},
		{"rehearse --from s.json --to calico", 2, "error: unknown flag: --to\n"},
		{"rehearse --from s.json now -- --to calico", 2, "error: \"now\" is before --\n"},
		{"rehearse --from s.json -- --to calico --context=c", 2, "error: --context is after --\n"},
		{"rehearse --from s.json --nodes 17 -- --to calico", 2, "error: 17 nodes: 1 to 16\n"},
		{"rehearse --from s.json --network frob -- --to calico", 2, "error: there is no network \"frob\"\n" +
			"hint: use --network flannel, "},
		{"rehearse --name Too-Long --from s.json -- --to calico", 2, "error: lab name \"Too-Long\" is not 1 to 6 "},
		{"rehearse --from s.json -- --to calico", 1, "error: theseus is not in the folder of theseus-lab\n"},
		{"status -o yaml", 2, "error: output \"yaml\" is neither text nor json\n"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var out, errOut bytes.Buffer
			args := append([]string{"--state", t.TempDir()}, strings.Fields(tt.args)...)
			if i := strings.Index(tt.args, "kubectl"); i == 0 {
				args = append([]string{"kubectl", "--state", t.TempDir()}, strings.Fields(tt.args)[1:]...)
			}
			code := Run(t.Context(), args, strings.NewReader(""), &out, &errOut)
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			if !strings.HasPrefix(errOut.String(), tt.want) {
				t.Errorf("got  %q\nwant %q", errOut.String(), tt.want)
			}
			if lines := strings.Split(errOut.String(), "\n"); len(lines) != 3 ||
				!strings.HasPrefix(lines[1], "hint: ") {
				t.Errorf("not one error line and one hint line: %q", errOut.String())
			}
			if out.Len() > 0 {
				t.Errorf("standard output: %q", out.String())
			}
		})
	}
}

func TestStatusWithoutLabs(t *testing.T) {
	for format, want := range map[string]string{"text": "LAB  NETWORK  NODE  ADDRESS  POWER  LINK\n", "json": "[]\n"} {
		var out, errOut bytes.Buffer
		code := Run(t.Context(), []string{"--state", t.TempDir(), "status", "-o", format}, nil, &out, &errOut)
		if code != 0 || out.String() != want {
			t.Errorf("%s: code %d, %q, %q", format, code, out.String(), errOut.String())
		}
	}
}

func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{"exit 7": 7, "kill -15 $$": 143} {
		err := exec.Command("sh", "-c", script).Run()
		if got := (&app{}).report(err); got != want {
			t.Errorf("%s: got %d, want %d", script, got, want)
		}
	}
	var errOut bytes.Buffer
	failed := fmt.Errorf("build kube: %w", exec.Command("sh", "-c", "exit 7").Run())
	if got := (&app{err: &errOut}).report(failed); got != 1 ||
		!strings.HasPrefix(errOut.String(), "error: build kube: exit status 7\nhint: ") {
		t.Errorf("a program that failed inside: code %d, said %q", got, errOut.String())
	}
}

func TestOwnFlags(t *testing.T) {
	a := &app{name: "a"}
	rest := a.ownFlags([]string{"--name", "b", "--state=/x", "get", "pods", "--name", "c"})
	if a.name != "b" || a.dir != "/x" || strings.Join(rest, " ") != "get pods --name c" {
		t.Errorf("got lab %q in %q, kubectl %q", a.name, a.dir, rest)
	}
}

// TestCompareOfRunningLabs: a comparison whose clusters would have the name of a running lab is refused, as it would
// remove that lab at its end. One that ended does not matter.
func TestCompareOfRunningLabs(t *testing.T) {
	dir := t.TempDir()
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"cmpa": 0, "cmpb": os.Getpid(), "xc": os.Getpid()} {
		lab := state.Lab{Spec: spec.Lab{Name: name}, Pid: pid, Born: state.Born(pid)}
		if err := errors.Join(os.Mkdir(store.Dir(name), 0o755), store.Save(lab)); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"--networks flannel,calico": "the lab is already running: cmpb\n" +
			"hint: theseus-lab down --name cmpb ends it; --name gives ",
		"--networks weave,cilium,calico --name x": "the lab is already running: xc\n" +
			"hint: theseus-lab down --name xc ends it; --name gives ",
		// not refused: the next question
		"--networks flannel,calico --name x": "theseus is not in the folder of theseus-lab\n",
	} {
		var out, errOut bytes.Buffer
		code := Run(t.Context(), append([]string{"--state", dir, "compare"}, strings.Fields(args)...), nil, &out,
			&errOut)
		if code != 1 || !strings.HasPrefix(errOut.String(), "error: "+want) || out.Len() > 0 {
			t.Errorf("%s: code %d, %q, %q", args, code, errOut.String(), out.String())
		}
	}
}

// TestCompareRefuses: networks whose programs are not built, and too little memory.
func TestCompareRefuses(t *testing.T) {
	programs := build.New("../../..", t.TempDir(), io.Discard)
	err := built(t.Context(), programs, []string{scenario.CalicoNftables})
	var f *failure
	if !errors.As(err, &f) || !strings.Contains(err.Error(), "network calico-nftables are not built: ") ||
		!strings.Contains(err.Error(), "calico-node") || strings.Contains(err.Error(), "theseus-agent") ||
		f.hint != "theseus-lab build --network calico" {
		t.Errorf("%v", err)
	}
	c := scenario.Compare{Networks: []string{"flannel", "calico"}, Rig: scenario.Rig{Nodes: 2}}
	for kB, refused := range map[int]bool{4 * perNode * 1024: false, 4*perNode*1024 - 1: true} {
		file := filepath.Join(t.TempDir(), "meminfo")
		text := fmt.Sprintf("MemTotal: 99999999 kB\nMemAvailable: %d kB\nBuffers: 1 kB\n", kB)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := roomy(file, c); (err != nil) != refused {
			t.Errorf("%d kB: %v", kB, err)
		}
	}
}
