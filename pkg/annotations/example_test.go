// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// An operator checks a ServiceAccount before it writes it.
func Example() {
	parser, err := annotations.New(annotations.Options{
		Config:            []byte("aws-default-region: eu-central-1\n"),
		ReservedAudiences: []string{"https://issuer.example.com"},
	})
	if err != nil {
		panic(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{
		annotations.AWSRoleARN: "arn:aws:iam::111122223333:role/app",
	}}}
	identities, _ := parser.Parse(serviceAccount)
	for _, identity := range identities {
		fmt.Println(identity.Provider, identity.Principals, identity.Audience, identity.Parameters["region"])
	}

	serviceAccount.Annotations[annotations.AWSRoleARN] = "app"
	_, mistakes := parser.Parse(serviceAccount)
	for _, mistake := range mistakes {
		fmt.Println(mistake.Field)
	}
	// Output:
	// aws [arn:aws:iam::111122223333:role/app] sts.amazonaws.com eu-central-1
	// metadata.annotations[lanyard.dev/aws-role-arn]
}
