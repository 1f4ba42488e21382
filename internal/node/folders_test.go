package node

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// The default folders, below a root.
const (
	confDir   = "etc/cni/net.d"
	binaryDir = "opt/cni/bin"
)

// The answers in testdata/runtime are those of real containerds (1.6.20 for k3s and MicroK8s, 2.3.7 for the others)
// to Status with verbose set, whose folders are set as each distribution sets them: k3s by
// pkg/agent/templates/templates_linux.go with its own flannel, RKE2 by the same file without flannel, which leaves
// containerd's defaults, and MicroK8s by microk8s-resources/default-args/containerd-template.toml.
const (
	k3sConf      = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	k3sPlugins   = "/var/lib/rancher/k3s/data/cni"
	snapConf     = "/var/snap/microk8s/7229/args/cni-network"
	rancherSock  = "/run/k3s/containerd/containerd.sock"
	usualSock    = "/run/containerd/containerd.sock"
	microk8sSock = "/var/snap/microk8s/common/run/containerd.sock"
)

// smallRoot is a node's root whose path is short enough for the name of a socket below it.
func smallRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "node")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(root)) })
	return root
}

// runtimeAt serves a recorded answer of the CRI, and pages by HTTP/1.
func runtimeAt(t *testing.T, root, socket string, answer []byte, pages map[string]string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(root+socket), 0o755))
	listener, err := net.Listen("unix", root+socket)
	must(t, err)
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if text, ok := pages[r.URL.Path]; ok {
				_, _ = w.Write([]byte(text))
				return
			}
			if r.ProtoMajor == 1 {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Content-Type", "application/grpc")
			code := "12"
			if r.URL.Path == "/runtime.v1.RuntimeService/Status" && answer != nil {
				_, _ = w.Write(answer)
				code = "0"
			}
			w.Header().Set("Grpc-Status", code)
		})}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { must(t, server.Close()) })
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	answer, err := os.ReadFile("testdata/runtime/" + name + ".grpc")
	must(t, err)
	return answer
}

// mute is an answer of the CRI that tells nothing.
var mute = []byte{0, 0, 0, 0, 0}

// process is a process on a node, in a mount namespace.
func process(t *testing.T, root, pid, mounts string, line ...string) {
	t.Helper()
	dir := filepath.Join(root, "proc", pid)
	write(t, dir, map[string]string{"cmdline": strings.Join(line, "\x00") + "\x00"})
	must(t, os.MkdirAll(filepath.Join(dir, "ns"), 0o755))
	must(t, os.Symlink(mounts, filepath.Join(dir, "ns/mnt")))
}

func link(t *testing.T, root, to, name string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
	must(t, os.Symlink(to, root+name))
}

// TestFolders: the folders are those that the runtime of the kubelet tells; nothing that a pod can do changes that.
func TestFolders(t *testing.T) {
	k3s := cluster.Folders{Conf: k3sConf, Plugins: []string{k3sPlugins},
		Source: "the answer of containerd at " + rancherSock}
	usual := cluster.DefaultFolders()
	for _, c := range []struct {
		name string
		node func(t *testing.T, root string)
		want cluster.Folders
	}{
		{"k3s", func(t *testing.T, root string) {
			runtimeAt(t, root, rancherSock, recorded(t, "k3s"), nil)
		}, k3s},
		{"k3s beside Docker", func(t *testing.T, root string) {
			runtimeAt(t, root, rancherSock, recorded(t, "k3s"), nil)
			runtimeAt(t, root, usualSock, nil, nil)
		}, k3s},
		{"RKE2", func(t *testing.T, root string) {
			runtimeAt(t, root, rancherSock, recorded(t, "rke2"), nil)
		}, cluster.Folders{Conf: usual.Conf, Plugins: usual.Plugins, Source: k3s.Source}},
		{"MicroK8s", func(t *testing.T, root string) {
			runtimeAt(t, root, microk8sSock, recorded(t, "microk8s"), nil)
			must(t, os.MkdirAll(root+snapConf, 0o755))
			must(t, os.MkdirAll(root+"/var/snap/microk8s/7229/opt/cni/bin", 0o755))
			link(t, root, "7229", "/var/snap/microk8s/current")
			link(t, root, "/var/snap/microk8s/current/args/cni-network", "/etc/cni/net.d")
		}, cluster.Folders{Conf: snapConf, Plugins: []string{"/var/snap/microk8s/7229/opt/cni/bin"},
			Links: map[string]string{"/var/snap/microk8s/current/args/cni-network": snapConf,
				"/var/snap/microk8s/current/opt/cni/bin": "/var/snap/microk8s/7229/opt/cni/bin",
				"/etc/cni/net.d":                         snapConf},
			Source: "the answer of containerd at " + microk8sSock}},
		{"the kubelet's flag", func(t *testing.T, root string) {
			process(t, root, "1", "mnt:[1]", "/sbin/init")
			process(t, root, "40", "mnt:[1]", "/usr/bin/kubelet",
				"--container-runtime-endpoint=unix:///var/run/two.sock")
			link(t, root, "/run", "/var/run")
			runtimeAt(t, root, usualSock, recorded(t, "rke2"), nil)
			runtimeAt(t, root, "/run/two.sock", recorded(t, "several"), nil)
		}, cluster.Folders{Conf: "/etc/kubernetes/cni/net.d", Plugins: []string{"/opt/cni/bin", "/usr/lib/cni"},
			Source: "the answer of containerd at /var/run/two.sock (the kubelet's)"}},
		{"the kubelet's file", func(t *testing.T, root string) {
			process(t, root, "1", "mnt:[1]", "/sbin/init")
			process(t, root, "40", "mnt:[1]", "kubelet", "--config", "/var/lib/kubelet/config.yaml")
			write(t, root, map[string]string{
				"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/two.sock\n"})
			runtimeAt(t, root, "/run/two.sock", recorded(t, "k3s"), nil)
		}, cluster.Folders{Conf: k3sConf, Plugins: []string{k3sPlugins},
			Source: "the answer of containerd at /run/two.sock (the kubelet's)"}},
		{"a kubelet in a pod", func(t *testing.T, root string) {
			process(t, root, "1", "mnt:[1]", "/sbin/init")
			process(t, root, "40", "mnt:[2]", "kubelet", "--container-runtime-endpoint=/run/two.sock")
			runtimeAt(t, root, rancherSock, recorded(t, "k3s"), nil)
			runtimeAt(t, root, "/run/two.sock", recorded(t, "several"), nil)
		}, k3s},
		{"CRI-O", func(t *testing.T, root string) {
			runtimeAt(t, root, "/run/crio/crio.sock", mute, map[string]string{"/config": "[crio]\n  [crio.image]\n" +
				"    network_dir = \"/no\"\n  [crio.network]\n    cni_default_network = \"\"\n" +
				"    network_dir = \"/etc/kubernetes/cni/net.d/\"\n" +
				"    plugin_dirs = [\"/opt/cni/bin/\", \"/usr/libexec/cni/\"]\n" +
				"  [crio.metrics]\n    network_dir = \"/no\"\n"})
		}, cluster.Folders{Conf: "/etc/kubernetes/cni/net.d", Plugins: []string{"/opt/cni/bin", "/usr/libexec/cni"},
			Source: "the configuration of CRI-O at /run/crio/crio.sock"}},
		{"cri-dockerd", func(t *testing.T, root string) {
			process(t, root, "1", "mnt:[1]", "/sbin/init")
			process(t, root, "40", "mnt:[1]", "/usr/bin/cri-dockerd", "--cni-conf-dir", "/etc/docker/net.d",
				"--cni-bin-dir=/opt/cni/bin,/usr/lib/cni")
			process(t, root, "41", "mnt:[2]", "cri-dockerd", "--cni-conf-dir=/no/no")
			runtimeAt(t, root, "/run/cri-dockerd.sock", mute, nil)
		}, cluster.Folders{Conf: "/etc/docker/net.d", Plugins: []string{"/opt/cni/bin", "/usr/lib/cni"},
			Source: "the command line of cri-dockerd at /run/cri-dockerd.sock"}},
		{"none", func(*testing.T, string) {}, cluster.Folders{Conf: usual.Conf, Plugins: usual.Plugins,
			Source: "the default of container runtimes", Problem: "no container runtime listens at "}},
		{"two that differ", func(t *testing.T, root string) {
			runtimeAt(t, root, usualSock, recorded(t, "rke2"), nil)
			runtimeAt(t, root, rancherSock, recorded(t, "k3s"), nil)
		}, cluster.Folders{
			Problem: "several container runtimes run here, and they read different folders: /etc/cni/net.d"}},
		{"no answer", func(t *testing.T, root string) {
			write(t, root, map[string]string{usualSock[1:]: ""})
		}, cluster.Folders{Problem: "ask the container runtime for its CNI folders: " + usualSock}},
		{"another answer", func(t *testing.T, root string) {
			runtimeAt(t, root, usualSock, mute, nil)
		}, cluster.Folders{Problem: "the runtime reports its folders neither by the CRI nor as CRI-O does"}},
		{"a folder of the host", func(t *testing.T, root string) {
			runtimeAt(t, root, "/run/crio/crio.sock", mute, map[string]string{
				"/config": "[crio.network]\nnetwork_dir = \"/opt/../etc\"\nplugin_dirs = [\"/opt/cni/bin\"]\n"})
		}, cluster.Folders{Problem: `it names "/opt/../etc", which is not a folder for CNI files`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := smallRoot(t)
			c.node(t, root)
			got := *(&Node{Root: root}).folderFacts()
			if !strings.Contains(got.Problem, c.want.Problem) || c.want.Problem == "" && got.Problem != "" {
				t.Errorf("problem %q, want %q", got.Problem, c.want.Problem)
			}
			got.Problem, c.want.Problem = "", ""
			if c.want.Links == nil {
				c.want.Links = got.Links
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("folders (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherFolders: verbs act in the folders of the runtime, through symbolic links too, and leave the default ones
// alone.
func TestOtherFolders(t *testing.T) {
	root := smallRoot(t)
	runtimeAt(t, root, rancherSock, recorded(t, "k3s"), nil)
	link(t, root, "/srv/k3s", "/var/lib/rancher/k3s")
	const conf, bins = "srv/k3s/agent/etc/cni/net.d/", "srv/k3s/data/cni/"
	write(t, root, map[string]string{conf + "10-calico.conflist.theseus": `{"name": "x", "type": "calico"}`,
		conf + "10-flannel.conflist": `{"name": "y", "type": "flannel"}`, bins + "calico": "",
		confDir + "/00-decoy.conflist": "{}", confDir + "/10-calico.conflist.theseus": "{}",
		binaryDir + "/flannel": ""})
	n := &Node{Root: root}
	pair := step.ConfArgs{Staged: "10-calico.conflist.theseus", Active: "10-calico.conflist"}
	if _, err := n.Do(t.Context(), step.VerbActivate, args(t, pair)); err != nil {
		t.Fatal(err)
	}
	if want := (map[string]string{"10-calico.conflist": `{"name": "x", "type": "calico"}`,
		"10-flannel.conflist": `{"name": "y", "type": "flannel"}`}); !cmp.Equal(want, readAll(t, filepath.Join(root, conf))) {
		t.Error(cmp.Diff(want, readAll(t, filepath.Join(root, conf))))
	}
	side, err := n.side(step.Attachment{Conf: []string{"10-calico.conflist"}})
	if err != nil || side.Network != "x" {
		t.Errorf("the network is %q: %v", side.Network, err)
	}
	told, err := n.folders()
	must(t, err)
	for plugin, want := range map[string]string{"calico": "/" + bins + "calico", "flannel": ""} {
		if got, _ := (&plugins{root: root}).FindInPath(plugin, told.plugins); got != want {
			t.Errorf("the plugin %s is %q, want %q", plugin, got, want)
		}
	}
	must(t, n.removeConf([]string{"10-flannel.conflist"}))
	files, err := n.confFiles()
	if err != nil || len(files) != 1 {
		t.Errorf("%v are left: %v", files, err)
	}
	if left := readAll(t, filepath.Join(root, confDir)); len(left) != 2 {
		t.Errorf("the default folder has %v", left)
	}
}

// TestSilentRuntime: while the folders are unknown, no verb guesses them; those that were told before count while a
// runtime restarts.
func TestSilentRuntime(t *testing.T) {
	root := smallRoot(t)
	pair := step.ConfArgs{Staged: "10-calico.conflist.theseus", Active: "10-calico.conflist"}
	write(t, root, map[string]string{usualSock[1:]: "", confDir + "/" + pair.Staged: `{"name": "x", "type": "calico"}`})
	n := &Node{Root: root}
	if _, err := n.Do(t.Context(), step.VerbActivate, args(t, pair)); err == nil ||
		!strings.Contains(err.Error(), "ask the container runtime for its CNI folders") {
		t.Errorf("error %v", err)
	}
	must(t, os.Remove(root+usualSock))
	t.Run("told", func(t *testing.T) {
		runtimeAt(t, root, usualSock, recorded(t, "rke2"), nil)
		if _, err := n.Do(t.Context(), step.VerbActivate, args(t, pair)); err != nil {
			t.Error(err)
		}
	})
	write(t, root, map[string]string{usualSock[1:]: ""})
	n.toldAt = n.toldAt.Add(-2 * folderFresh)
	if _, err := n.Do(t.Context(), step.VerbActivate, args(t, pair)); err != nil {
		t.Error(err)
	}
}

// FuzzRuntimeAnswer holds that no answer of a runtime makes the agent panic, or names a folder at the top of the node.
func FuzzRuntimeAnswer(f *testing.F) {
	for _, name := range []string{"k3s", "several"} {
		answer, err := os.ReadFile("testdata/runtime/" + name + ".grpc")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(answer[5:], "[crio.network]\nnetwork_dir = \"/etc/cni/net.d\"\nplugin_dirs = [\n'/a/b',\n]\n")
	}
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "cniconfig")
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), `{"PluginConfDir": "/"}`)
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), entry), "network_dir=")
	f.Fuzz(func(t *testing.T, answer []byte, config string) {
		one, errOne := ofContainerd(answer)
		two, errTwo := ofCRIO([]byte(config))
		for told, err := range map[*cluster.Folders]error{&one: errOne, &two: errTwo} {
			if err != nil || told.Conf == "" && told.Plugins == nil {
				continue
			}
			for _, name := range append(told.Plugins, told.Conf) {
				if strings.Count(filepath.Clean(name), "/") < 2 || !filepath.IsAbs(name) {
					t.Errorf("a folder is %q", name)
				}
			}
			if _, err := json.Marshal(told); err != nil {
				t.Error(err)
			}
		}
		if errors.Is(errOne, errNoCRI) {
			t.Error("an answer is taken for none")
		}
	})
}
