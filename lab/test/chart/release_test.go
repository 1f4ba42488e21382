package chart

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// repository is the checkout; the release is made of its commit.
const repository = "../../.."

// kills is how often TestRelease kills the controller.
const kills = 10

// TestRelease makes a release, and does with it what its users do: the images are pushed to a registry of their own,
// the chart of the release is installed from there, and a Change makes the controller move the cluster to Calico, all
// by the script of the documentation. The controller is killed ten times on the way. Nodes pull all images of Theseus
// by digest from that registry; the lab gives them none. Another machine fetches the report.
func TestRelease(t *testing.T) {
	helm, err := rigtest.Program("helm")
	if err != nil {
		t.Fatal(err)
	}
	release := unpacked(t)
	rig := rigtest.Unstarted(t, bin, "rel", 3)
	rig.Theseus = filepath.Join(release, "theseus")
	if err := rig.Up(t.Context(), "flannel"); err != nil {
		t.Fatal(err)
	}
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	c.withoutImages()
	registry := c.registry(release)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, begun := c.pods(), time.Now()
	script := c.script(release, registry)
	answer, err := script.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- script.Run() }()
	c.approve(answer, ended)
	c.killOften(kills, ended)
	if err := <-ended; err != nil {
		t.Fatalf("the script: %v\n%s", err, c.state())
	}
	t.Logf("from a cluster with flannel to a report of its migration, with 3 nodes: %s",
		time.Since(begun).Round(time.Second))

	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after an adoption by the controller of a release")
	t.Logf("nothing lost of %d requests", cost.Sent())
	if after := c.pods(); !slices.Equal(before, after) {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s",
			strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	// a machine that is busy may lose a probe: the clients decide
	rigtest.Run(t, rig, "third", 0, []string{"3 nodes, 20 pods, 0 restarts, "}, "report")
	c.uninstall()
}

// script is the documentation's script, with the tools that it needs on its PATH, in a folder of its own.
func (c *cluster) script(release, registry string) *exec.Cmd {
	c.t.Helper()
	kube, err := rigtest.Program(build.Kube(build.KubernetesVersions()[0]))
	if err != nil {
		c.t.Fatal(err)
	}
	manifest, err := c.ManifestFile(c.t.Context(), "calico")
	if err != nil {
		c.t.Fatal(err)
	}
	example, err := filepath.Abs(repository + "/docs/examples/in-the-cluster.sh")
	if err != nil {
		c.t.Fatal(err)
	}
	dir := c.t.TempDir()
	for name, content := range map[string]string{
		"helm":    "#!/bin/sh\nexec " + c.path + " \"$@\"\n",
		"kubectl": "#!/bin/sh\nexec " + kube + " kubectl \"$@\"\n",
		"theseus": "#!/bin/sh\nexec " + c.Theseus + " \"$@\"\n",
		"change.yaml": `{apiVersion: theseus.dev/v1alpha1, kind: Change, metadata: {name: to-calico}, spec: {to: calico, strategy: adopt,
manifestFrom: {configMap: calico}, probeIntervalMillis: 60, maxLost: 50, maxGapMillis: 10000, bakeSeconds: 1}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	cmd := exec.Command(example, filepath.Join(release, "theseus-0.2.0.tgz"), "change.yaml", manifest, "--set",
		"image.registry="+registry, "--timeout", "3m")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, c.Out, c.Out
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir,
		"KUBECONFIG="+filepath.Join(c.Dir, "kubeconfig"), "HELM_CACHE_HOME="+c.home,
		"HELM_CONFIG_HOME="+c.home, "HELM_DATA_HOME="+c.home)
	return cmd
}

// unpacked makes a release of the commit that is checked out, for this machine's platform, and unpacks what this
// machine needs of it: the program, the layout with the images, and the chart.
func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	made := filepath.Join(dir, "release")
	release := exec.Command("go", "run", "./cmd/theseus-release", "--repository", "..", "release", "v0.2.0",
		"--platform", "linux/amd64", "--dir", made)
	release.Dir = filepath.Join(repository, "release")
	for _, command := range []*exec.Cmd{
		release,
		exec.Command("tar", "-xzf", made+"/theseus_v0.2.0_linux_amd64.tar.gz", "-C", dir, "theseus"),
		exec.Command("tar", "-xzf", made+"/theseus_v0.2.0_images.tar.gz", "-C", dir),
		exec.Command("cp", made+"/theseus-0.2.0.tgz", dir),
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

// registry starts Debian's docker-registry on the fabric of the lab, with a certificate that nodes are told to trust,
// and pushes the images of a release there. It returns the registry with the folder in it.
func (c *cluster) registry(release string) string {
	c.t.Helper()
	lab, err := c.Spec(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	dir, address := c.t.TempDir(), netip.AddrPortFrom(lab.GatewayIP(), 5000).String()
	authority, err := pki.NewAuthority("the authority of the registry", time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	server, err := authority.Server(time.Now(), "registry", nil, []netip.Addr{lab.GatewayIP()})
	if err != nil {
		c.t.Fatal(err)
	}
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\n"+
		"http: {addr: %q, tls: {certificate: %q, key: %q}}\n",
		filepath.Join(dir, "data"), address, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	for name, content := range map[string][]byte{"config.yml": []byte(config), "ca.crt": authority.Cert,
		"tls.crt": server.Cert, "tls.key": server.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	onFabric := []string{"exec", "--name", c.Name, "--network", "--"}
	serve := exec.Command(c.Lab, append(onFabric, "docker-registry", "serve", filepath.Join(dir, "config.yml"))...)
	serve.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the lab's program starts the registry as another process
	if err := serve.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		syscall.Kill(-serve.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may be gone
		serve.Wait()                                      //nolint:errcheck // killed
	})
	trust := fmt.Sprintf("mkdir -p /etc/containerd/certs.d/%[1]s && cd "+
		"/etc/containerd/certs.d/%[1]s && cat >ca.crt <<'END'\n%[2]sEND\n"+
		"printf '[host.\"https://%[1]s\"]\\nca = \"/etc/containerd/certs.d/%[1]s/ca.crt\"\\n' >hosts.toml",
		address, authority.Cert)
	for _, node := range c.NodeNames() {
		c.sh(node, trust)
		rigtest.Until(c.t, "the registry answers "+node, func() bool {
			return c.sh(node, "curl -fsS -m 1 --cacert /etc/containerd/certs.d/"+address+"/ca.crt https://"+address+
				"/v2/ >/dev/null 2>&1 && echo yes || echo no") == "yes"
		})
	}
	registry := address + "/infra"
	push := exec.Command(c.Lab, append(onFabric, "env", "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"), c.Theseus,
		"image", "push", registry, "--from", filepath.Join(release, "images"))...)
	out, err := push.CombinedOutput()
	fmt.Fprintf(c.Out, "$ theseus image push %s\n%s", registry, out)
	if err != nil {
		c.t.Fatalf("theseus image push: %v\n%s", err, out)
	}
	return registry
}

// approve answers the script's question with the name of the migration that the controller has planned.
func (c *cluster) approve(answer io.Writer, ended chan error) {
	c.t.Helper()
	var migration string
	rigtest.Within(c.t, 6*time.Minute, "the controller has made a plan", func() bool {
		c.stillRuns(ended)
		// nothing before there is one
		migration, _ = c.Kubectl(c.t.Context(), nil, "get", "change", "to-calico", "-o", "jsonpath={.status.migration}")
		return migration != ""
	})
	if _, err := fmt.Fprintln(answer, migration); err != nil {
		c.t.Fatal(err)
	}
}

// stillRuns ends the test if the script has ended.
func (c *cluster) stillRuns(ended chan error) {
	c.t.Helper()
	if len(ended) > 0 {
		c.t.Fatalf("the script has ended: %v\n%s", <-ended, c.state())
	}
}

// killOften kills the controller, once whenever another part of the steps is done: in turns its process and its whole
// pod, since a kubelet waits longer each time before it starts a process of the same pod again.
func (c *cluster) killOften(times int, ended chan error) {
	c.t.Helper()
	for i := 1; i <= times; i++ {
		rigtest.Within(c.t, 6*time.Minute, fmt.Sprintf("%d of %d parts of the migration are done",
			i, times+1), func() bool {
			c.stillRuns(ended)
			said, _ := c.Kubectl(c.t.Context(), nil, "-n", namespace, "get", "migrations", "-o",
				"jsonpath={range .items[*]}{.status.done}/{.status.total}{end}")
			done, total, _ := strings.Cut(strings.TrimSpace(said), "/") // nothing is said before there is one
			steps, err := strconv.Atoi(done)
			all, err2 := strconv.Atoi(total)
			return err == nil && err2 == nil && all > 0 && steps*(times+1) >= i*all
		})
		if i%2 == 1 {
			c.killController()
		} else {
			c.deleteController()
		}
	}
}
