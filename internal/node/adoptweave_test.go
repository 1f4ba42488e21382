package node

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// weaveList is as Weave Net's own script writes it.
const weaveList = `{"cniVersion":"0.3.0","name":"weave","plugins":[{"name":"weave","type":"weave-net","hairpinMode":true},
	{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`

var weaving = step.Attachment{Conf: []string{"10-weave.conflist"}, Bridge: "weave", Asks: true,
	Claim: "http://127.0.0.1:6784/ip/{id}/{address}/24"}

// router starts the router of a node, which is a process of its own as in a cluster, and waits until it answers.
func router(t *testing.T, w *site, weaver, node, name string) {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	command := exec.Command("nsenter", "--net="+node, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		weaver, "--port=6783", "--name="+name, "--nickname="+name, "--datapath=datapath", "--no-fastdp",
		"--http-addr=127.0.0.1:6784", "--docker-api=", "--no-dns", "--db-prefix="+dir+"/",
		"--ipalloc-range=198.19.5.0/24", "--ipalloc-init=consensus=2")
	command.Dir, command.Env = dir, append(os.Environ(), "CHECKPOINT_DISABLE=1")
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", name, text)
		}
	})
}

// dropped says what the router of the thread's namespace lost, as it and the kernel count it: every frame between nodes
// passes its process, and what comes while that does not run for longer than its buffers last is lost, whatever is done
// next to it.
func dropped() (string, error) {
	conn, err := net.Dial("tcp4", "127.0.0.1:6784") // by this thread, as http.Get would not
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /report HTTP/1.0\r\nAccept: application/json\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	var report struct {
		Router struct {
			CaptureStats struct{ PacketsReceived, PacketsDropped int }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&report); err != nil {
		return "", err
	}
	sockets, err := os.ReadFile("/proc/thread-self/net/udp")
	for line := range strings.Lines(string(sockets)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], ":1A7F") { // port 6783
			return fmt.Sprintf("%+v of frames to the other, %s datagrams from it",
				report.Router.CaptureStats, f[len(f)-1]), nil
		}
	}
	return "", cmp.Or(err, errors.New("no socket of a router"))
}

// built is the last build of a program in the lab's cache, which has each in a folder of its name, by a hash of its
// source.
func built(t *testing.T, programs, name string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(programs, name, "*", name))
	must(t, err)
	var newest string
	var at time.Time
	for _, file := range all {
		info, err := os.Stat(file)
		must(t, err)
		if info.ModTime().After(at) {
			newest, at = file, info.ModTime()
		}
	}
	if newest == "" {
		t.Fatalf("%s has no %s: run `theseus-lab build --network weave`", programs, name)
	}
	return newest
}

// TestAdoptWeave moves pods from Weave Net's own routers of two nodes, which carry frames between them, and back.
func TestAdoptWeave(t *testing.T) { bothWays(t, testAdoptWeave) }

func testAdoptWeave(t *testing.T) {
	programs := os.Getenv("THESEUS_WEAVE")
	if programs == "" {
		t.Skip("NOT TESTED: pods of real routers of Weave Net, which make lab-test tests; THESEUS_WEAVE names the " +
			"folder bin in the lab's cache")
	}
	if !alone(t) {
		return
	}
	w := newSite(t)
	must(t, unix.Mount("/dev", filepath.Join(w.Root, "dev"), "", unix.MS_BIND, "")) // the plugin runs iptables
	plugin, err := os.ReadFile(built(t, programs, "weaveutil"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(w.Root, binaryDir, "weave-net"), plugin, 0o755))
	write(t, w.Root, map[string]string{confDir + "/10-weave.conflist": weaveList,
		confDir + "/05-routed.conflist.theseus": strings.Replace(routedList, "198.19.5.0/24", "198.19.0.0/16", 1)})
	other := &testPod{name: "node", path: "/run/netns/node-2", t: t, w: w}
	other.makeSpace()
	node := filepath.Join(w.Root, other.path)
	sh(t, "", "sh", "-c", `set -e; ip link add eth0 type veth peer name eth1; ip link set eth1 netns `+node+
		`; ip address add 198.18.0.11/24 dev eth0; ip link set eth0 up`)
	for _, command := range []string{"link set eth1 name eth0", "address add 198.18.0.12/24 dev eth0",
		"link set eth0 up"} {
		other.ip(strings.Fields(command)...)
	}
	weaver := built(t, programs, "weaver")
	router(t, w, weaver, "/proc/self/ns/net", "00:00:00:00:00:01")
	router(t, w, weaver, node, "00:00:00:00:00:02")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if answer, err := http.PostForm("http://127.0.0.1:6784/connect",
			url.Values{"peer": {"198.18.0.12"}}); err == nil {
			_ = answer.Body.Close()
		}
		answer, err := http.Get("http://127.0.0.1:6784/status/connections")
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if strings.Contains(string(text), "established") {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the routers do not find each other: %v", err)
		}
	}
	a, b := w.pod("a", weaveList, nil), w.pod("b", weaveList, nil)
	c := &testPod{name: "c", path: "/run/netns/c", t: t, w: w}
	c.makeSpace()
	answer := sh(t, `{"cniVersion":"0.3.0","name":"weave","type":"weave-net","hairpinMode":true}`,
		"nsenter", "--net="+node, "env", "CNI_COMMAND=ADD", "CNI_CONTAINERID=far",
		"CNI_NETNS="+filepath.Join(w.Root, c.path), "CNI_IFNAME=eth0", "CNI_PATH="+filepath.Join(w.Root, binaryDir),
		filepath.Join(w.Root, binaryDir, "weave-net"))
	_, rest, _ := strings.Cut(answer, `"address": "`)
	c.address, _, _ = strings.Cut(rest, "/")
	t.Logf("a %s, b %s, c %s", a.address, b.address, c.address)
	w.forgets() // containerd v1
	before := a.state()
	all := []*traffic{talk(t, w, "c to a", c, a, a.address), talk(t, w, "a to c", a, c, c.address),
		talk(t, w, "b to a", b, a, a.address), talk(t, w, "host to a", nil, a, a.address)}
	there, back := step.AdoptArgs{From: weaving, To: routed}, step.AdoptArgs{From: routed, To: weaving, Release: true}
	for range 3 {
		do(t, w.Node, step.VerbAdopt, there)
		if on := a.whole() + b.whole(); on != "routedrouted" {
			t.Errorf("after the way there: %s", on)
		}
		do(t, w.Node, step.VerbAdopt, back)
		if on := a.whole() + b.whole(); on != "bridgedbridged" {
			t.Errorf("after the way back: %s", on)
		}
	}
	for _, f := range all {
		f.end(t)
	}
	tell := func() error {
		lost, err := dropped()
		t.Logf("a router dropped %s", lost)
		return err
	}
	must(t, tell())
	other.in(tell)
	if after := a.state(); after != before {
		t.Errorf("the pod's network was\n%s\nand is\n%s", before, after)
	}
}
