// Package dnstest runs real name servers and resolvers for tests: BIND, Knot, PowerDNS and unbound, each with a
// configuration of its own in a temporary folder, on a free port of 127.0.0.1, ended by its process id.
package dnstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/internal/mirror/dns/rfc2136"
)

// root is where lab/install.sh unpacks the servers.
const root = "/usr/local/lib/theseus-lab/dns"

// NotShort skips a test with -short, as real name servers take their time.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("real name servers: not with -short")
	}
}

// Server is a running server.
type Server struct {
	// Address is host:port.
	Address string
	// Zone is the one it serves, Key its key for updates and transfers; empty of resolvers.
	Zone string
	Key  rfc2136.Key
	// PID is the server's process.
	PID int
}

// Primary is the client of the server's zone.
func (s *Server) Primary() *rfc2136.Server {
	return &rfc2136.Server{Zone: s.Zone, Address: s.Address, Key: s.Key}
}

// Kinds are the authoritative servers, by name.
func Kinds() map[string]func(t testing.TB, zone, text string) *Server {
	return map[string]func(t testing.TB, zone, text string) *Server{"bind": BIND, "knot": Knot, "powerdns": PowerDNS}
}

// ZoneText is a zone file: an SOA whose negative TTL is short, and the given lines.
func ZoneText(zone string, lines ...string) string {
	return fmt.Sprintf("$ORIGIN %s\n$TTL 2\n@ 2 IN SOA ns hostmaster 1 3600 600 86400 1\n@ 2 IN NS ns\n"+
		"ns 2 IN A 127.0.0.1\n%s\n", zone, strings.Join(lines, "\n"))
}

// BIND runs named.
func BIND(t testing.TB, zone, text string) *Server {
	s, dir := prepare(t, zone, text)
	write(t, dir, "named.conf", fmt.Sprintf(`
options { directory %[1]q; pid-file "named.pid"; session-keyfile "session.key"; listen-on port %[2]s { 127.0.0.1; };
  listen-on-v6 { none; }; recursion no; notify no; allow-query { any; }; dnssec-validation no; };
controls { };
key %[3]q { algorithm hmac-sha256; secret %[4]q; };
zone %[5]q { type primary; file "zone"; update-policy { grant %[3]s zonesub ANY; }; allow-transfer { key %[3]q; }; };
`, dir, port(s), s.Key.Name, s.Key.Secret, zone))
	s.start(t, dir, "usr/sbin/named", "-g", "-n", "1", "-c", filepath.Join(dir, "named.conf"))
	return s
}

// Knot runs knotd.
func Knot(t testing.TB, zone, text string) *Server {
	s, dir := prepare(t, zone, text)
	write(t, dir, "knot.conf", fmt.Sprintf(`
server:
    listen: 127.0.0.1@%[2]s
    rundir: %[1]s
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
log:
  - target: stderr
    any: warning
database:
    storage: %[1]s/db
key:
  - id: %[3]s
    algorithm: hmac-sha256
    secret: %[4]s
acl:
  - id: all
    key: %[3]s
    action: [update, transfer]
zone:
  - domain: %[5]s
    file: %[1]s/zone
    zonefile-sync: -1
    journal-content: changes
    acl: all
`, dir, port(s), s.Key.Name, s.Key.Secret, zone))
	s.start(t, dir, "usr/sbin/knotd", "-c", filepath.Join(dir, "knot.conf"))
	return s
}

// PowerDNS runs pdns_server on SQLite.
func PowerDNS(t testing.TB, zone, text string) *Server {
	s, dir := prepare(t, zone, text)
	write(t, dir, "pdns.conf", fmt.Sprintf(`
launch=gsqlite3
gsqlite3-database=%[1]s/pdns.sqlite3
gsqlite3-pragma-synchronous=0
module-dir=%[3]s
socket-dir=%[1]s
local-address=127.0.0.1
local-port=%[2]s
dnsupdate=yes
allow-dnsupdate-from=127.0.0.0/8
allow-axfr-ips=
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
zone-cache-refresh-interval=0
disable-syslog=yes
`, dir, port(s), library("pdns")))
	schema, err := os.ReadFile(filepath.Join(root, "usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"))
	if err != nil {
		t.Fatal(missing(err))
	}
	makeDatabase(t, filepath.Join(dir, "pdns.sqlite3"), string(schema))
	name, key := strings.TrimSuffix(zone, "."), strings.TrimSuffix(s.Key.Name, ".")
	for _, args := range [][]string{
		{"load-zone", name, filepath.Join(dir, "zone")},
		{"import-tsig-key", key, "hmac-sha256", s.Key.Secret},
		{"set-meta", name, "TSIG-ALLOW-DNSUPDATE", key},
		{"set-meta", name, "TSIG-ALLOW-AXFR", key},
	} {
		command := command(t.Context(), "usr/bin/pdnsutil", append([]string{"--config-dir=" + dir}, args...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("pdnsutil %s: %v\n%s", args, missing(err), out)
		}
	}
	s.start(t, dir, "usr/sbin/pdns_server", "--config-dir="+dir)
	return s
}

// Unbound runs a caching resolver in front of servers.
func Unbound(t testing.TB, fronts ...*Server) *Server {
	s, dir := prepare(t, "", "")
	config := fmt.Sprintf(`server:
  interface: 127.0.0.1@%s
  directory: %q
  pidfile: %q
  chroot: ""
  username: ""
  use-syslog: no
  do-daemonize: no
  do-ip6: no
  num-threads: 1
  module-config: "iterator"
  do-not-query-localhost: no
  access-control: 127.0.0.0/8 allow
remote-control:
  control-enable: no
`, port(s), dir, filepath.Join(dir, "unbound.pid"))
	for _, front := range fronts {
		host, number, _ := net.SplitHostPort(front.Address)
		config += fmt.Sprintf("stub-zone:\n  name: %q\n  stub-addr: %s@%s\n", front.Zone, host, number)
		s.Zone = front.Zone
	}
	write(t, dir, "unbound.conf", config)
	s.start(t, dir, "usr/sbin/unbound", "-c", filepath.Join(dir, "unbound.conf"), "-d")
	return s
}

// prepare makes a folder, a free port and a key.
func prepare(t testing.TB, zone, text string) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "zone", text)
	if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	return &Server{Address: free(t), Zone: zone, Key: rfc2136.Key{Name: "cut.", Algorithm: dns.HmacSHA256,
		Secret: base64.StdEncoding.EncodeToString(secret)}}, dir
}

// free is an address of which neither UDP's nor TCP's port is in use.
func free(t testing.TB) string {
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		packets, err := net.ListenPacket("udp", address)
		l.Close()
		if err == nil {
			packets.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

func port(s *Server) string {
	_, number, _ := net.SplitHostPort(s.Address)
	return number
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func library(name string) string {
	found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/"+name))
	return strings.Join(found, "")
}

func missing(err error) error {
	return fmt.Errorf("%w (lab/install.sh unpacks the name servers to %s: make setup)", err, root)
}

// command is one of the unpacked programs, with its libraries.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(root, program), args...)
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return c
}

// start runs the server until the test ends, and waits until it answers.
func (s *Server) start(t testing.TB, dir, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := command(context.Background(), program, args...)
	c.Stdout, c.Stderr, c.Dir = log, log, dir
	if err := c.Start(); err != nil {
		t.Fatal(missing(err))
	}
	s.PID = c.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Wait() //nolint:errcheck // it is killed
	}()
	t.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may be gone
		<-ended
		log.Close()
	})
	m := new(dns.Msg)
	m.SetQuestion(s.Zone, dns.TypeSOA)
	for deadline := time.Now().Add(20 * time.Second); ; {
		answer, _, err := (&dns.Client{Timeout: time.Second}).Exchange(m, s.Address)
		if err == nil && answer.Rcode == dns.RcodeSuccess && len(answer.Answer) > 0 {
			return
		}
		select {
		case <-ended:
			deadline = time.Now()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s (pid %s) does not answer at %s: %v\n%s",
				program, strconv.Itoa(s.PID), s.Address, err, bytes.TrimSpace(said))
		}
	}
}
