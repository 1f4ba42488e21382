package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/release/layer"
)

// TestImage follows every reference of an image, as an importer does.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	one, err := saveLayer(filepath.Join(dir, "one"), []layer.File{layer.Directory("/one", 0o755)})
	if err != nil {
		t.Fatal(err)
	}
	two, err := saveLayer(filepath.Join(dir, "two"), []layer.File{layer.Directory("/two", 0o755)})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := openLayer(one.path); err != nil || again != one {
		t.Errorf("the layer reads back as %v, %v; want %v", again, err, one)
	}
	var image bytes.Buffer
	if err := writeImage(&image, "example.test/x:1", settings{Entrypoint: []string{"/x"}, User: "999"},
		[]packed{one, two}); err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	for entries := tar.NewReader(&image); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if blobs[h.Name], err = io.ReadAll(entries); err != nil {
			t.Fatal(err)
		}
	}
	read := func(d descriptor, into any) {
		t.Helper()
		content, ok := blobs[strings.TrimPrefix(blob(d.Digest), "/")]
		sum := sha256.Sum256(content)
		if !ok || "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || int64(len(content)) != d.Size {
			t.Fatalf("blob %s is missing or another one", d.Digest)
		}
		if into == nil {
			return
		}
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "example.test/x:1" {
		t.Errorf("the image is called %q", name)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0], &manifest)
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config, &config)
	if config.Config.User != "999" || len(config.Config.Entrypoint) != 1 {
		t.Errorf("containers get %+v", config.Config)
	}
	for i, l := range manifest.Layers {
		read(l, nil)
		if config.RootFS.DiffIDs[i] != l.Digest {
			t.Errorf("layer %d is %s, but the config says %s", i, l.Digest, config.RootFS.DiffIDs[i])
		}
	}
}

// unpack makes a root of the shared layer and of more files.
func unpack(t *testing.T, more ...layer.File) string {
	t.Helper()
	files, _, err := userland()
	if err != nil {
		t.Fatal(err)
	}
	libs, err := missing(more, files)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, files := range [][]layer.File{files, append(libs, more...)} {
		packed := filepath.Join(t.TempDir(), "layer.tar")
		if _, err := saveLayer(packed, files); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("tar", "-C", root, "-xf", packed).CombinedOutput(); err != nil {
			t.Fatalf("unpack: %v\n%s", err, out)
		}
	}
	return root
}

// inside runs commands in a root: whatever is missing, the loader says.
func inside(t *testing.T, root string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if out, err := exec.Command("chroot", root, "/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// TestToolsRun runs every tool of the shared layer.
func TestToolsRun(t *testing.T) {
	inside(t, unpack(t),
		"iptables -V", "iptables-save -V", "iptables-nft-restore -V", "ip6tables-legacy -V",
		"iptables -m set --help", "iptables -m conntrack --help", "iptables -j REJECT --help",
		"ipset -v", "nft -v", "conntrack -V", "ip -V", "ethtool --version",
		"cp /bin/cat /tmp/cat", "ls /", "sleep 0", "seq 1 2")
}

// TestWeaveToolsRun runs what Weave Net's scripts and programs call: curl and ulogd with their libraries,
// and ulogd's plugins, which nothing names but its configuration.
func TestWeaveToolsRun(t *testing.T) {
	list, err := weaveImages()
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{
		WeaveKube: {"curl --version", "echo a b | grep a | cut -d' ' -f1 | tr a c | sed s/c/d/ | wc -l",
			"mkdir /x && ln -s / /x/y && mv /x/y /x/z && readlink -f /x/z && rm /x/z", "id -u", "uname -s -r"},
		WeaveNPC: {
			"ulogd --version", "test -p /var/log/ulogd.pcap",
			"ulogd --info /usr/lib/ulogd/ulogd_inppkt_NFLOG.so && ulogd --info /usr/lib/ulogd/ulogd_output_PCAP.so " +
				"&& ulogd --info /usr/lib/ulogd/ulogd_raw2packet_BASE.so",
		},
	}
	for _, r := range list {
		more, err := programs(r.tools)
		if err != nil {
			t.Fatal(err)
		}
		inside(t, unpack(t, append(more, r.files...)...), commands[r.name]...)
	}
}

// TestCiliumToolsRun runs what Cilium's containers and their scripts call, and compiles with the image's compiler.
func TestCiliumToolsRun(t *testing.T) {
	list, err := ciliumImages()
	if err != nil {
		t.Skip("NOT TESTED: Cilium's image: ", err)
	}
	agent := list[0]
	more, err := programs(agent.tools)
	if err != nil {
		t.Fatal(err)
	}
	inside(t, unpack(t, append(more, agent.files...)...),
		"echo 'int x;' >/x.c && clang -O2 --target=bpf -nostdinc -g -c /x.c -o /x.o",
		"bash -c true", "nsenter --version", "mount --version",
		"mkdir /y && cp /x.o /y && mv /y/x.o /y/z && find /y -name z | grep z && rm /y/z", "basename /a/b")
}

func TestRecipes(t *testing.T) {
	for network, want := range map[string]int{"none": 3, "bridge": 7, "calico": 6, "canal": 7, "flannel": 11,
		"kindnet": 8, "kube-router": 7, "weave": 8} {
		list, err := recipes(network, "", t.TempDir())
		if err != nil || len(list) != want {
			t.Errorf("%s: %d images, %v; want %d", network, len(list), err, want)
		}
	}
	if _, err := recipes("weve", "", t.TempDir()); err == nil {
		t.Error("there are images for a network that does not exist")
	}
}
