package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/fabric"
)

// Stage names: the first argument of the program when it is to become a machine.
const (
	StageBoot = "_machine-boot"
	StageInit = "_machine-init"
)

// Boot is the first stage of process 1. It runs in fresh namespaces, waits for its configuration on
// descriptor 3 (which also says that its cgroup and its wire are there), makes the cgroup namespace
// and the root, and becomes Init. It returns only on failure.
func Boot() error {
	// A namespace belongs to a thread: everything up to exec must happen on this one.
	runtime.LockOSThread()
	in := os.NewFile(3, "configuration")
	var c Config
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	in.Close()
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new cgroup namespace: %w", err)
	}
	if err := buildRoot(c); err != nil {
		return err
	}
	if err := configureNetwork(c); err != nil {
		return err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(configFile, raw, 0o600); err != nil {
		return err
	}
	env := []string{
		"PATH=" + binDir + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
	}
	return unix.Exec(binDir+"/theseus-lab", []string{"theseus-lab", StageInit}, env)
}

func configureNetwork(c Config) error {
	// rp_filter: while two networks are joined, packets come back another way than they went.
	settings := map[string]string{
		"net/ipv4/ip_forward":                "1",
		"net/ipv4/conf/all/rp_filter":        "0",
		"net/ipv4/conf/default/rp_filter":    "0",
		"net/ipv4/conf/eth0/rp_filter":       "0",
		"net/bridge/bridge-nf-call-iptables": "1",
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	return fabric.Configure(c.Addr, c.Routes)
}
