// Package route53 reads and changes a hosted zone of Amazon Route 53. A change batch is all or nothing, and takes a
// record away only if it is given exactly as it is: that makes each change a compare-and-swap. A change counts
// once Route 53 says that all its servers have it (INSYNC).
package route53

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	// maxChanges is what one batch may have of records; an account is allowed five requests a second.
	maxChanges = 1000
	// fewNames is up to how many names are asked one by one; for more the zone is read as a whole.
	fewNames = 8
)

// Zone is one hosted zone.
type Zone struct {
	// Name is canonical, ID as Route 53 gives it: "Z0123456789".
	Name, ID string
	Client   *route53.Client
	// Poll is the time between two questions whether a change is in sync; 0 for 2 s.
	Poll time.Duration
}

// Connect takes credentials as every AWS tool does: environment, shared files, the machine's role. The endpoint is
// empty but for what stands in for Route 53.
func Connect(ctx context.Context, name, id, endpoint string) (*Zone, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{})) // what goes wrong is in errors
	if err != nil {
		return nil, fmt.Errorf("configuration of AWS: %w", err)
	}
	if c.Region == "" {
		c.Region = "us-east-1" // Route 53 has no regions, but its signatures do
	}
	client := route53.NewFromConfig(c, func(o *route53.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	return &Zone{Name: name, ID: strings.TrimPrefix(id, "/hostedzone/"), Client: client}, nil
}

// Load reads the whole zone.
func (z *Zone) Load(ctx context.Context) (*zone.Zone, error) {
	sets, err := z.list(ctx, "")
	if err != nil {
		return nil, err
	}
	loaded := &zone.Zone{Name: z.Name, Can: zone.Can{Swap: true, Weights: true}}
	for _, set := range sets {
		if set.Type == "SOA" && len(set.Values) == 1 {
			fields := strings.Fields(set.Values[0])
			minimum, err := strconv.ParseUint(fields[len(fields)-1], 10, 32)
			if err != nil {
				return nil, fmt.Errorf("SOA of %s: %w", z.Name, err)
			}
			loaded.Negative = min(set.TTL, uint32(minimum))
			continue
		}
		loaded.Sets = append(loaded.Sets, set)
	}
	zone.Sorted(loaded.Sets)
	return loaded, nil
}

// Read says what is at places.
func (z *Zone) Read(ctx context.Context, places []zone.Place) (zone.Current, error) {
	names := map[string]bool{}
	for _, at := range places {
		names[at.Name] = true
	}
	var sets []zone.RRSet
	if len(names) > fewNames {
		names = map[string]bool{"": true}
	}
	for name := range maps.Keys(names) {
		found, err := z.list(ctx, name)
		if err != nil {
			return nil, err
		}
		sets = append(sets, found...)
	}
	current := zone.CurrentOf(sets)
	maps.DeleteFunc(current, func(at zone.Place, _ []zone.RRSet) bool { return !slices.Contains(places, at) })
	return current, nil
}

// list reads the sets of one name, or, with "", all.
func (z *Zone) list(ctx context.Context, name string) ([]zone.RRSet, error) {
	input := &route53.ListResourceRecordSetsInput{HostedZoneId: &z.ID}
	if name != "" {
		input.StartRecordName = &name
	}
	var all []zone.RRSet
	for {
		page, err := z.Client.ListResourceRecordSets(ctx, input)
		if err != nil {
			return nil, z.explain("reading", err)
		}
		for _, record := range page.ResourceRecordSets {
			set, err := fromRoute53(record)
			if err != nil {
				return nil, fmt.Errorf("zone %s: %w", z.Name, err)
			}
			if name != "" && set.Name != name {
				return all, nil
			}
			all = append(all, set)
		}
		if !page.IsTruncated {
			return all, nil
		}
		input.StartRecordName, input.StartRecordType, input.StartRecordIdentifier = page.NextRecordName,
			page.NextRecordType, page.NextRecordIdentifier
	}
}

// Commit changes all units or none, and waits until all servers of Route 53 have the change.
func (z *Zone) Commit(ctx context.Context, t zone.Transaction) error {
	var away, new []types.Change
	for _, u := range t.Units {
		gone, come := u.Changes()
		for _, set := range gone {
			away = append(away, types.Change{Action: types.ChangeActionDelete, ResourceRecordSet: toRoute53(set)})
		}
		for _, set := range come {
			new = append(new, types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: toRoute53(set)})
		}
	}
	if n := len(away) + len(new); n > maxChanges {
		return engine.WithHint(fmt.Errorf("a batch of %d changes: Route 53 takes %d", n, maxChanges),
			"plan with a smaller --batch")
	}
	answer, err := z.Client.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: &z.ID,
		ChangeBatch: &types.ChangeBatch{Comment: aws.String("theseus mirror dns"), Changes: append(away, new...)}})
	if err != nil {
		return z.explain("change", err)
	}
	return z.inSync(ctx, answer.ChangeInfo)
}

func (z *Zone) inSync(ctx context.Context, info *types.ChangeInfo) error {
	poll := z.Poll
	if poll <= 0 {
		poll = 2 * time.Second
	}
	for info.Status != types.ChangeStatusInsync {
		timer := time.NewTimer(poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("change %s of %s is not in sync yet: %w", aws.ToString(info.Id), z.Name, ctx.Err())
		case <-timer.C:
		}
		answer, err := z.Client.GetChange(ctx, &route53.GetChangeInput{Id: info.Id})
		if err != nil {
			return z.explain("reading the status of the change", err)
		}
		info = answer.ChangeInfo
	}
	return nil
}

// explain sorts what Route 53 answers.
func (z *Zone) explain(what string, err error) error {
	what = fmt.Sprintf("%s of zone %s (%s) at Route 53", what, z.Name, z.ID)
	var batch *types.InvalidChangeBatch
	if errors.As(err, &batch) {
		text := strings.Join(append(batch.Messages, aws.ToString(batch.Message)), " ")
		for _, sign := range []string{"but it was not found", "do not match the current values",
			"but it already exists"} {
			if strings.Contains(text, sign) {
				return fmt.Errorf("%s: %w: %s", what, zone.ErrConflict, text)
			}
		}
		return fmt.Errorf("%s: %w: %s", what, zone.ErrRefused, text)
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		if refused := noCredentials(what, err); refused != nil {
			return refused
		}
		return fmt.Errorf("%s: %w: %w", what, engine.ErrUnavailable, err)
	}
	hint := ""
	switch api.ErrorCode() {
	case "Throttling", "ThrottlingException", "PriorRequestNotComplete", "ServiceUnavailable",
		"InternalFailure", "InternalError":
		return fmt.Errorf("%s: %w: %w", what, engine.ErrUnavailable, err)
	case "AccessDenied", "AccessDeniedException":
		hint = "allow route53:ListResourceRecordSets, ChangeResourceRecordSets and GetChange on the zone"
	case "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch", "RequestExpired", "InvalidSignatureException",
		"UnrecognizedClientException":
		hint = "renew the credentials (aws sts get-caller-identity shows them), and check this machine's clock"
	case "NoSuchHostedZone":
		hint = "check the zone's id: aws route53 list-hosted-zones"
	}
	return engine.WithHint(fmt.Errorf("%s: %w: %w", what, zone.ErrRefused, err), hint)
}

// noCredentials tells missing credentials, which no waiting brings, from a network that is down.
func noCredentials(what string, err error) error {
	if text := err.Error(); !strings.Contains(text, "get identity") && !strings.Contains(text, "credentials") {
		return nil
	}
	return engine.WithHint(fmt.Errorf("%s: %w: %w", what, zone.ErrRefused, err),
		"give credentials as for the aws tool: AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
}

// canonical brings a name of Route 53, which writes * as \052, into our form.
func canonical(name *string) string {
	return dns.CanonicalName(strings.ReplaceAll(aws.ToString(name), `\052`, "*"))
}

func fromRoute53(record types.ResourceRecordSet) (zone.RRSet, error) {
	set := zone.RRSet{Name: canonical(record.Name), Type: string(record.Type), TTL: uint32(aws.ToInt64(record.TTL)),
		SetID: aws.ToString(record.SetIdentifier), Weight: record.Weight, Routing: routing(record)}
	if target := record.AliasTarget; target != nil {
		set.Alias = &zone.Alias{Name: canonical(target.DNSName), Zone: aws.ToString(target.HostedZoneId),
			Health: target.EvaluateTargetHealth}
	}
	for _, one := range record.ResourceRecords {
		value := aws.ToString(one.Value)
		if set.IsAddress() || set.Type == zone.TXT || set.Type == "NS" {
			rr, err := zone.ParseRR(set.Name + " 0 IN " + set.Type + " " + value)
			if err != nil || rr == nil {
				return set, fmt.Errorf("record %s %s %q cannot be read: %w", set.Name, set.Type, value, err)
			}
			value = zone.Value(rr)
		}
		set.Values = append(set.Values, value)
	}
	slices.Sort(set.Values)
	return set, nil
}

// routing names what is more than a plain, an alias or a weighted record.
func routing(r types.ResourceRecordSet) string {
	switch {
	case r.Failover != "":
		return "failover"
	case r.Region != "":
		return "latency"
	case r.GeoLocation != nil, r.GeoProximityLocation != nil:
		return "geolocation"
	case r.CidrRoutingConfig != nil:
		return "cidr"
	case r.MultiValueAnswer != nil:
		return "multivalue"
	case r.TrafficPolicyInstanceId != nil:
		return "traffic policy"
	case r.HealthCheckId != nil:
		return "health check"
	}
	return ""
}

func toRoute53(set zone.RRSet) *types.ResourceRecordSet {
	record := &types.ResourceRecordSet{Name: &set.Name, Type: types.RRType(set.Type), Weight: set.Weight}
	if set.SetID != "" {
		record.SetIdentifier = &set.SetID
	}
	if set.Alias != nil {
		record.AliasTarget = &types.AliasTarget{DNSName: &set.Alias.Name, HostedZoneId: &set.Alias.Zone,
			EvaluateTargetHealth: set.Alias.Health}
		return record
	}
	record.TTL = aws.Int64(int64(set.TTL))
	for _, value := range set.Values {
		record.ResourceRecords = append(record.ResourceRecords, types.ResourceRecord{Value: &value})
	}
	return record
}
