package names

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// root is where lab/install.sh unpacks the name servers.
const root = "/usr/local/lib/theseus-lab/dns"

// Zone is a zone on BIND, and unbound in front of it, both on loopback.
type Zone struct {
	Dir           string // for configuration and logs
	Origin        string // without the dot
	Bind, Unbound int    // ports
	Records       []string
}

// Server is a program to be run, with what it needs of the environment.
type Server struct {
	Args []string
	Env  []string
}

// Write makes all files: of the servers, and zones.yaml, in which http is the port of the services.
func (z *Zone) Write(http int) error {
	secret := make([]byte, 32)
	rand.Read(secret)
	key := base64.StdEncoding.EncodeToString(secret)
	for name, text := range map[string]string{
		"zone": "$TTL 2\n@ 2 IN SOA ns hostmaster 1 3600 600 86400 1\n@ 2 IN NS ns\nns 2 IN A 127.0.0.1\n" +
			strings.Join(z.Records, "\n") + "\n",
		"key": key,
		"named.conf": fmt.Sprintf(
			`options { directory %[1]q; pid-file "named.pid"; session-keyfile "session.key"; listen-on port %[2]d { 127.0.0.1; };
  listen-on-v6 { none; }; recursion no; notify no; allow-query { any; }; dnssec-validation no; };
controls { };
key "cut" { algorithm hmac-sha256; secret %[3]q; };
zone %[4]q { type primary; file "zone"; update-policy { grant cut zonesub ANY; }; allow-transfer { key "cut"; }; };
`, z.Dir, z.Bind, key, z.Origin),
		"unbound.conf": fmt.Sprintf(`server:
  interface: 127.0.0.1@%d
  directory: %q
  pidfile: ""
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
stub-zone:
  name: %q
  stub-addr: 127.0.0.1@%d
`, z.Unbound, z.Dir, z.Origin, z.Bind),
		"zones.yaml": fmt.Sprintf(`apiVersion: theseus.dev/v1alpha1
kind: Zones
zones:
- name: %s
  rfc2136: {server: "127.0.0.1:%d", key: cut, secretFile: key}
  authoritative: ["127.0.0.1:%[2]d"]
resolvers: ["127.0.0.1:%d"]
owners: {original: blue, mirror: green}
ports: {80: %d}
`, z.Origin, z.Bind, z.Unbound, http),
	} {
		if err := os.WriteFile(filepath.Join(z.Dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Servers are BIND and unbound.
func (z *Zone) Servers() []Server {
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*")) // none is said by the servers themselves
	env := append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return []Server{
		{[]string{filepath.Join(root, "usr/sbin/named"), "-g", "-n", "1", "-c", filepath.Join(z.Dir, "named.conf")},
			env},
		{[]string{filepath.Join(root, "usr/sbin/unbound"), "-c", filepath.Join(z.Dir, "unbound.conf"), "-d"}, env},
	}
}

// Start runs a server by a command, such as one that enters a network namespace before, and returns what ends it.
func (s Server) Start(log string, prefix ...string) (stop func(), err error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	args := append(prefix[:len(prefix):len(prefix)], s.Args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Env, file, file
	if err := cmd.Start(); err != nil {
		file.Close()
		return nil, fmt.Errorf("%w: lab/install.sh unpacks the name servers", err)
	}
	return func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // killed
		file.Close()
	}, nil
}
