package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
)

// Changed is the error of an action whose resource was changed after the plan was made.
type Changed struct{ Action cloud.Action }

func (c *Changed) Error() string {
	return fmt.Sprintf("%s: it was changed since the plan was made, and not by this plan", c.Action)
}

// Hint returns what to do.
func (c *Changed) Hint() string { return "look at it, then make a new plan" }

// Needed reports whether an action, or its reversal, still has to be done.
func (c *Cloud) Needed(ctx context.Context, a cloud.Action, back bool) (bool, error) {
	needed, _, err := c.look(ctx, a, back)
	if err != nil {
		return false, explain(err)
	}
	return needed, nil
}

// Do executes an action, or reverts it, unless that is already done. It calls begin before it writes anything.
func (c *Cloud) Do(ctx context.Context, a cloud.Action, back bool, begin func() error) error {
	needed, write, err := c.look(ctx, a, back)
	if err != nil {
		return explain(err)
	}
	if !needed {
		return nil
	}
	if err := begin(); err != nil {
		return err
	}
	if err := write(); err != nil {
		return explain(fmt.Errorf("%s: %w", a, err))
	}
	return nil
}

// look says whether an action is still to be done, and how.
func (c *Cloud) look(ctx context.Context, a cloud.Action, back bool) (needed bool, write func() error, err error) {
	switch a.Verb {
	case cloud.CreateIssuer:
		return c.issuer(ctx, a, back)
	case cloud.CreateProfile, cloud.AddToProfile:
		return c.profile(ctx, a, back)
	case cloud.AttachPolicy:
		return c.attach(ctx, a, back)
	case cloud.PutPolicy, cloud.Trust, cloud.NewVersion:
		return c.policy(ctx, a, back)
	case cloud.AllowIn, cloud.AllowOut:
		return c.rule(ctx, a, back)
	}
	return false, nil, fmt.Errorf("unknown action %q", a.Verb)
}

func (c *Cloud) issuer(ctx context.Context, a cloud.Action, back bool) (bool, func() error, error) {
	var i cloud.Inventory
	if err := c.issuers(ctx, &i); err != nil {
		return false, nil, err
	}
	at := slices.IndexFunc(i.Issuers, func(one cloud.Issuer) bool { return one.URL == a.Subject })
	if back {
		return at >= 0, func() error {
			_, err := c.IAM.DeleteOpenIDConnectProvider(ctx,
				&iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: &i.Issuers[at].ARN})
			return err
		}, nil
	}
	return at < 0, func() error {
		_, err := c.IAM.CreateOpenIDConnectProvider(ctx,
			&iam.CreateOpenIDConnectProviderInput{Url: aws.String("https://" + a.Subject),
				ClientIDList: a.Issuer.Clients, ThumbprintList: a.Issuer.Thumbprints})
		return err
	}, nil
}

func (c *Cloud) profile(ctx context.Context, a cloud.Action, back bool) (bool, func() error, error) {
	found, err := c.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &a.Subject})
	there := !none(err)
	if err != nil && there {
		return false, nil, err
	}
	if a.Verb == cloud.CreateProfile {
		return there == back, func() error {
			if back {
				_, err := c.IAM.DeleteInstanceProfile(ctx,
					&iam.DeleteInstanceProfileInput{InstanceProfileName: &a.Subject})
				return err
			}
			_, err := c.IAM.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &a.Subject})
			return err
		}, nil
	}
	has := there && slices.Contains(profile(found.InstanceProfile).Roles, a.Name)
	return has == back, func() error {
		if back {
			_, err := c.IAM.RemoveRoleFromInstanceProfile(ctx,
				&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &a.Subject, RoleName: &a.Name})
			return err
		}
		_, err := c.IAM.AddRoleToInstanceProfile(ctx,
			&iam.AddRoleToInstanceProfileInput{InstanceProfileName: &a.Subject, RoleName: &a.Name})
		return err
	}, nil
}

func (c *Cloud) attach(ctx context.Context, a cloud.Action, back bool) (bool, func() error, error) {
	role, err := c.role(ctx, &a.Subject)
	if err != nil {
		return false, nil, err
	}
	return slices.Contains(role.Attached, a.Name) == back, func() error {
		if back {
			_, err := c.IAM.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: &a.Subject, PolicyArn: &a.Name})
			return err
		}
		_, err := c.IAM.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: &a.Subject, PolicyArn: &a.Name})
		return err
	}, nil
}

// policy writes a policy if it is the one that the action knows.
func (c *Cloud) policy(ctx context.Context, a cloud.Action, back bool) (bool, func() error, error) {
	from, to := a.Before, a.After
	if back {
		from, to = to, from
	}
	now, err := c.now(ctx, a)
	switch {
	case err != nil:
		return false, nil, err
	case now == to:
		return false, nil, nil
	case now != from:
		return false, nil, &Changed{a}
	}
	text := aws.String(string(to))
	return true, func() (err error) {
		switch {
		case a.Verb == cloud.Trust:
			_, err = c.IAM.UpdateAssumeRolePolicy(ctx,
				&iam.UpdateAssumeRolePolicyInput{RoleName: &a.Subject, PolicyDocument: text})
		case a.Verb == cloud.NewVersion:
			_, err = c.Policies.CreatePolicyVersion(ctx,
				&iam.CreatePolicyVersionInput{PolicyArn: &a.Subject, PolicyDocument: text, SetAsDefault: true})
		case to == "":
			_, err = c.IAM.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &a.Subject, PolicyName: &a.Name})
		default:
			_, err = c.IAM.PutRolePolicy(ctx,
				&iam.PutRolePolicyInput{RoleName: &a.Subject, PolicyName: &a.Name, PolicyDocument: text})
		}
		return err
	}, nil
}

// now is the policy that an action changes.
func (c *Cloud) now(ctx context.Context, a cloud.Action) (cloud.Document, error) {
	switch a.Verb {
	case cloud.PutPolicy:
		return c.inline(ctx, a.Subject, a.Name)
	case cloud.Trust:
		found, err := c.IAM.GetRole(ctx, &iam.GetRoleInput{RoleName: &a.Subject})
		if err != nil {
			return "", err
		}
		return document(found.Role.AssumeRolePolicyDocument)
	}
	if c.Policies == nil {
		return "", fmt.Errorf("managed policies cannot be changed here")
	}
	found, err := c.Policies.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: &a.Subject})
	if err != nil {
		return "", err
	}
	return c.version(ctx, &a.Subject, found.Policy.DefaultVersionId)
}

func (c *Cloud) rule(ctx context.Context, a cloud.Action, back bool) (bool, func() error, error) {
	found, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{a.Subject}})
	if err != nil {
		return false, nil, err
	}
	if len(found.SecurityGroups) != 1 {
		return false, nil, fmt.Errorf("there is no security group %s", a.Subject)
	}
	have := found.SecurityGroups[0].IpPermissions
	if a.Verb == cloud.AllowOut {
		have = found.SecurityGroups[0].IpPermissionsEgress
	}
	there := slices.ContainsFunc(rules(have), a.Rule.Same)
	permissions := []types.IpPermission{permission(*a.Rule)}
	return there == back, func() (err error) {
		switch {
		case a.Verb == cloud.AllowIn && back:
			_, err = c.EC2.RevokeSecurityGroupIngress(ctx,
				&ec2.RevokeSecurityGroupIngressInput{GroupId: &a.Subject, IpPermissions: permissions})
		case a.Verb == cloud.AllowIn:
			_, err = c.EC2.AuthorizeSecurityGroupIngress(ctx,
				&ec2.AuthorizeSecurityGroupIngressInput{GroupId: &a.Subject, IpPermissions: permissions})
		case back:
			_, err = c.EC2.RevokeSecurityGroupEgress(ctx,
				&ec2.RevokeSecurityGroupEgressInput{GroupId: &a.Subject, IpPermissions: permissions})
		default:
			_, err = c.EC2.AuthorizeSecurityGroupEgress(ctx,
				&ec2.AuthorizeSecurityGroupEgressInput{GroupId: &a.Subject, IpPermissions: permissions})
		}
		return err
	}, nil
}

func permission(r cloud.Rule) types.IpPermission {
	p := types.IpPermission{IpProtocol: &r.Protocol}
	if r.Protocol != "-1" {
		p.FromPort, p.ToPort = aws.Int32(int32(r.From)), aws.Int32(int32(r.To))
	}
	var text *string
	if r.Text != "" {
		text = &r.Text
	}
	switch {
	case r.Group != "":
		p.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: &r.Group, Description: text}}
	case r.PrefixList != "":
		p.PrefixListIds = []types.PrefixListId{{PrefixListId: &r.PrefixList, Description: text}}
	case strings.Contains(r.CIDR, ":"):
		p.Ipv6Ranges = []types.Ipv6Range{{CidrIpv6: &r.CIDR, Description: text}}
	default:
		p.IpRanges = []types.IpRange{{CidrIp: &r.CIDR, Description: text}}
	}
	return p
}
