package felix

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	want := map[string]int{"v3.30.1": 184, "v3.31.0": 190, "v3.32.0": 190, "v3.33.0": 190}
	for _, table := range load() {
		if len(table.Parameters) != want[table.Release] {
			t.Errorf("%s has %d parameters", table.Release, len(table.Parameters))
		}
		// What Calico publishes as a default must be taken, whatever its kind: that holds the reading of the schemas.
		for _, p := range table.Parameters {
			if p.Default == "" || strings.Contains(p.Schema, "bitmask") {
				continue
			}
			if err := p.Check(p.Default); err != nil {
				t.Errorf("%s: %s: the default %q: %v", table.Release, p.Name, p.Default, err)
			}
		}
	}
	if len(load()) != len(want) {
		t.Errorf("%d tables, want %d", len(load()), len(want))
	}
	table := For("v3.31.4")
	if _, known, felix := table.ByVariable("FELIX_vxlanPORT"); !known || !felix {
		t.Error("the name of a variable is not read in any case")
	}
	if _, known, felix := table.ByVariable("FELIX_NO_SUCH"); known || !felix {
		t.Error("a parameter that is none")
	}
	if _, _, felix := table.ByVariable("IP"); felix {
		t.Error("IP is no variable of Felix")
	}
}

func TestFor(t *testing.T) {
	for version, want := range map[string]string{
		"v3.28.5": "v3.30.1", "v3.30.7": "v3.30.1", "v3.31.0": "v3.31.0", "v3.32.1": "v3.32.0", "v3.40.0": "v3.33.0",
		"": "v3.33.0", "latest": "v3.33.0",
	} {
		if have := For(version).Release; have != want {
			t.Errorf("%q gets %s", version, have)
		}
	}
	// What facts say of the releases: auto came with v3.32 as the default.
	for version, want := range map[string]string{"v3.31.0": "Disabled", "v3.32.1": "Auto"} {
		if p, _ := For(version).ByField("nftablesMode"); p.Default != want {
			t.Errorf("nftablesMode is %s in %s", p.Default, version)
		} else if p.Check("Enable") == nil {
			t.Errorf("nftablesMode may be Enable in %s", version)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name, good, bad string
	}{
		{"BPFEnabled", "Yes", "on"},
		{"ChainInsertMode", "APPEND", "prepend"},
		{"NFTablesMode", "enabled", "auto"}, // v3.31 does not take it yet
		{"VXLANPort", "0x12b5", "4789/udp"},
		{"HealthPort", "65535", "65536"},
		{"GoGCThreshold", "-1", "-2"},
		{"RouteRefreshInterval", "1.5", "90s"},
		{"WireguardInterfaceName", "wg.cali", "a-name-that-is-too-long"},
		{"LogDebugFilenameRegex", "^a.*", "["},
		{"IptablesMarkMask", "0xff00", "0x100"},
		{"NATOutgoingAddress", "10.0.0.1", "fd00::1"},
		{"ExternalNodesCIDRList", "10.0.0.0/8, 10.1.1.1", "10.0.0.0/99"},
		{"NATPortRange", "30000:32767", "2:1"},
		{"KubeNodePortRanges", "30000:32767,80", "80,http"},
		{"FailsafeInboundHostPorts", "tcp:22,udp:10.0.0.0/8:53,UDP:[fd00::/8]:68,80", "icmp:1"},
		{"FailsafeOutboundHostPorts", "none", "tcp:nowhere:53"},
		{"FeatureDetectOverride", "ChecksumOffloadBroken=true", "ChecksumOffloadBroken"},
	} {
		p, known, _ := For("v3.31.0").ByVariable("FELIX_" + test.name)
		if !known {
			t.Errorf("%s is not in the table", test.name)
		}
		if err := p.Check(test.good); err != nil {
			t.Errorf("%s=%s: %v", test.name, test.good, err)
		}
		if p.Check(test.bad) == nil {
			t.Errorf("%s=%s is taken", test.name, test.bad)
		}
	}
}

func TestCheckField(t *testing.T) {
	for _, test := range []struct {
		field     string
		good, bad any
	}{
		{"routeRefreshInterval", "1m30s", "90"},
		{"vxlanPort", int64(4789), 1.5},
		{"bpfEnabled", true, "on"},
		{"externalNodesList", []any{"10.0.0.0/8"}, []any{"10.0.0.0/99"}},
		{"failsafeInboundHostPorts", []any{map[string]any{"port": int64(1)}}, "x"},
		{"nftablesMode", "", "Auto"},
	} {
		p, ok := For("v3.31.0").ByField(test.field)
		if !ok {
			t.Errorf("%s is not in the table", test.field)
		}
		if err := p.CheckField(test.good); err != nil {
			t.Errorf("%s: %v: %v", test.field, test.good, err)
		}
		if p.CheckField(test.bad) == nil {
			t.Errorf("%s: %v is taken", test.field, test.bad)
		}
	}
}

// FuzzCheck holds that no text makes a parameter panic.
func FuzzCheck(f *testing.F) {
	for i, text := range []string{"0xffff0000", "tcp:[fd00::/8]:22", "30000:32767", "[", "1e999", "none"} {
		f.Add(uint8(i), text)
	}
	f.Fuzz(func(_ *testing.T, n uint8, text string) {
		parameters := For("").Parameters
		p := parameters[int(n)%len(parameters)]
		_, _ = p.Check(text), p.CheckField(text)
	})
}

// TestInLog reads lines as Felix v3.31.0 wrote them.
func TestInLog(t *testing.T) {
	p, _ := For("v3.31.0").ByField("nftablesMode")
	const head = "2026-11-21 08:16:56.595 [INFO][220] felix/daemon.go 354: "
	for _, test := range []struct{ line, value, at string }{
		{head +
			`Successfully loaded configuration. GOMAXPROCS=2 config=&config.Config{DataplaneDriver:"calico-iptables-plugin", NFTablesMode:"Enabled", WireguardEnabled:false}`,
			"Enabled", "2026-11-21 08:16:56.595"},
		{head + `Successfully loaded configuration. config=&config.Config{OtherNFTablesMode:"Enabled"}`, "", ""},
		{head + `Parsed value for NFTablesMode: Enabled (from datastore (per-host))`, "", ""},
		{"", "", ""},
	} {
		value, at, ok := p.InLog(test.line)
		if value != test.value || at != test.at || ok != (test.value != "") {
			t.Errorf("%q, %q, %t from %s", value, at, ok, test.line)
		}
	}
	other, _ := For("v3.31.0").ByField("wireguardEnabled")
	if value, _, ok := other.InLog(head +
		`Successfully loaded configuration. config=&config.Config{NFTablesMode:"Enabled", WireguardEnabled:false, X:1}`); !ok ||
		value != "false" {
		t.Errorf("%q, %t", value, ok)
	}
}
