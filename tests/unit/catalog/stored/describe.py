# contents.py DB > contents: what a loaded store must have, from the raw rows.
import sqlite3,sys,struct
c=sqlite3.connect(f'file:{sys.argv[1]}?immutable=1',uri=True)
dev=dict(c.execute('select number,name from devices'))
for r in c.execute('select * from nodes order by id'):
    (id,kind,mode,uid,gid,cr,ac,mo,ch,parent,cookie,name,device,state,flags,size,extent,offset,creator,fm,fa,implicit,target,type_,number,more)=r[:26]
    links=[(parent,cookie,name.decode())] if parent is not None else []
    attrs={}; acls={}
    b=more or b''
    while b:
        p=b[0]; b=b[1:]
        def num():
            global b
            v=struct.unpack('<Q',b[:8])[0]; b=b[8:]; return v
        def s():
            global b
            n=num(); v=b[:n]; b=b[n:]; return v.decode()
        if p==1: a=num(); k=num(); links.append((a,k,s()))
        elif p==2: k=s(); attrs[k]=s()
        elif p in (4,5): n=num(); acls[p]=list(struct.iter_unpack('<HHI',b[4:n])); b=b[n:]
        else: raise SystemExit('retired')
    t=f'{id} kind {kind} mode {mode:o} owner {uid}:{gid} times {cr} {ac} {mo} {ch}'
    for l in sorted(links): t+=f' link {l[0]}/{l[1]}/{l[2]}'
    for k in sorted(attrs): t+=f' {k}={attrs[k]}'
    for p in sorted(acls): t+={4:' acl',5:' default'}[p]+''.join(f' {g}/{r}/{i if g in (2,8) else 0}' for g,r,i in acls[p])
    if kind==1: t+=f' device {dev[device].decode()} state {state} flags {flags} size {size} extent {extent} offset {offset} file {fm} {fa}'
    if kind==2: t+=f' implicit {implicit}'
    if kind==3: t+=f' target {target.decode()}'
    if kind==4: t+=f' type {type_} number {number}'
    print(t)
