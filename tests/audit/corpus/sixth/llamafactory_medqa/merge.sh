#!/bin/bash
llamafactory-cli export conf/merge.yaml
