package chart

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// repository is the checkout; the release is made of its commit.
const repository = "../../.."

// kills is how often TestRelease kills the controller.
const kills = 10

// TestRelease makes a release, and does with it what its users do: the images are pushed to a registry of their own,
// the chart of the release is installed from there, and the controller moves the cluster to Calico. Its process is killed
// ten times on the way. Nodes pull all images of Theseus by digest from that registry; the lab gives them none.
func TestRelease(t *testing.T) {
	rigtest.Full(t, "a whole release, pushed to a registry, installed by its chart, and its controller killed ten times (15 minutes)")
	helm, err := rigtest.Program("helm")
	if err != nil {
		t.Fatal(err)
	}
	release := unpacked(t)
	rig := rigtest.Unstarted(t, bin, "rel", 2, "--max-lost", "50", "--max-gap", "10s", "--bake", "1s")
	rig.Theseus, rig.Strategy = filepath.Join(release, "theseus"), "adopt"
	if err := rig.Up(t.Context(), "flannel"); err != nil {
		t.Fatal(err)
	}
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	c.withoutImages()
	rig.Registry = c.registry(release)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.pods()
	c.mustHelm("install", "theseus", filepath.Join(release, "theseus-0.2.0.tgz"), "--create-namespace", "--wait", "--timeout", "3m", "--set", "image.registry="+rig.Registry)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.grant(plan)
	laptop := rigtest.Start(t, rig, "laptop", "apply", plan, "--in-cluster", "--yes")
	laptop.Until("is in the cluster")
	c.killOften(kills)
	laptop.Ends(0)

	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after an adoption by the controller of a release")
	t.Logf("nothing lost of %d requests", cost.Sent())
	if after := c.pods(); !slices.Equal(before, after) {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	rigtest.Run(t, rig, "third", 0, []string{"0 lost"}, "report")
	c.uninstall()
}

// unpacked makes a release of the commit that is checked out, and unpacks what this machine needs of it: the program, the
// layout with the images, and the chart.
func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, command := range []*exec.Cmd{
		exec.Command("make", "-C", repository, "release", "VERSION=v0.2.0"),
		exec.Command("tar", "-xzf", repository+"/bin/release/theseus_v0.2.0_linux_amd64.tar.gz", "-C", dir, "theseus"),
		exec.Command("tar", "-xzf", repository+"/bin/release/theseus_v0.2.0_images.tar.gz", "-C", dir),
		exec.Command("cp", repository+"/bin/release/theseus-0.2.0.tgz", dir),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	return dir
}

// withoutImages removes the images of Theseus that the lab's nodes hold.
func (c *cluster) withoutImages() {
	c.t.Helper()
	for _, node := range c.NodeNames() {
		c.sh(node, "ctr -n k8s.io images rm "+scenario.AgentImage+" localhost:1/theseus-controller:dev")
		if left := c.sh(node, "ctr -n k8s.io images ls -q | grep theseus- || true"); left != "" {
			c.t.Fatalf("%s holds images of Theseus: %s", node, left)
		}
	}
}

// registry starts Debian's docker-registry on the fabric of the lab, with a certificate that nodes are told to trust, and
// pushes the images of a release there. It returns the registry with the folder in it.
func (c *cluster) registry(release string) string {
	c.t.Helper()
	lab, err := c.Spec(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	dir, address := c.t.TempDir(), netip.AddrPortFrom(lab.GatewayIP(), 5000).String()
	authority, err := pki.NewAuthority("registry", time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	server, err := authority.Server(time.Now(), "registry", nil, []netip.Addr{lab.GatewayIP()})
	if err != nil {
		c.t.Fatal(err)
	}
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q, tls: {certificate: %q, key: %q}}\n",
		filepath.Join(dir, "data"), address, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	for name, content := range map[string][]byte{"config.yml": []byte(config), "ca.crt": authority.Cert, "tls.crt": server.Cert, "tls.key": server.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	onFabric := []string{"exec", "--name", c.Name, "--network", "--"}
	serve := exec.Command(c.Lab, append(onFabric, "docker-registry", "serve", filepath.Join(dir, "config.yml"))...)
	if err := serve.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		serve.Process.Kill() //nolint:errcheck // it may be gone
		serve.Wait()         //nolint:errcheck // killed
	})
	trust := fmt.Sprintf("mkdir -p /etc/containerd/certs.d/%[1]s && cd /etc/containerd/certs.d/%[1]s && cat >ca.crt <<'END'\n%[2]sEND\nprintf '[host.\"https://%[1]s\"]\\nca = \"/etc/containerd/certs.d/%[1]s/ca.crt\"\\n' >hosts.toml",
		address, authority.Cert)
	for _, node := range c.NodeNames() {
		c.sh(node, trust)
		rigtest.Until(c.t, "the registry answers "+node, func() bool {
			return c.sh(node, "curl -fsS -m 1 --cacert /etc/containerd/certs.d/"+address+"/ca.crt https://"+address+"/v2/ >/dev/null 2>&1 && echo yes || echo no") == "yes"
		})
	}
	registry := address + "/infra"
	push := exec.Command(c.Lab, append(onFabric, "env", "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"), c.Theseus, "image", "push", registry, "--from", filepath.Join(release, "images"))...)
	out, err := push.CombinedOutput()
	fmt.Fprintf(c.Out, "$ theseus image push %s\n%s", registry, out)
	if err != nil {
		c.t.Fatalf("theseus image push: %v\n%s", err, out)
	}
	return registry
}

// killOften kills the controller's process, once whenever another part of the steps is done.
func (c *cluster) killOften(times int) {
	c.t.Helper()
	for i := 1; i <= times; i++ {
		rigtest.Until(c.t, fmt.Sprintf("%d of %d parts of the migration are done", i, times+1), func() bool {
			done, total, _ := strings.Cut(c.kubectl("", "get", "migrations", "-o", "jsonpath={.items[0].status.done}/{.items[0].status.total}"), "/")
			steps, err := strconv.Atoi(done)
			all, err2 := strconv.Atoi(total)
			return err == nil && err2 == nil && steps*(times+1) >= i*all
		})
		c.killController()
	}
}
